"""`ols-as-shipped`: OLS as its published program behaves, because that is what the papers could measure.

That program never adds to a node's load (assigning a worker adds the node's load, which is 0, to itself). So in the
second phase "least loaded" means "first with a slot", and a node's capacity is compared with one worker at a time; its
plans may overload a node. Everything else, parameters and complexity included, is `ols`.
"""

from __future__ import annotations

from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.place import ols


def schedule(problem: Problem, options: Options) -> Placement:
    """OLS's plan with nodes that never count what they hold."""
    return ols.schedule(problem, options, adds_node_load=False)
