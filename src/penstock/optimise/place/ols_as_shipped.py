"""`ols-as-shipped`: OLS as its published program behaves, because that is what the papers could measure.

That program leaves a node's load at 0: assigning a worker adds the node's load to itself
(`test_as_shipped_forgets_what_a_node_holds_and_so_piles_workers_up`). So in the second phase "least loaded" means
"first with a slot", and a node's capacity is compared with one worker at a time; its plans may overload a node.
Everything else, parameters and complexity included, is `ols`.
"""

from __future__ import annotations

from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.place import ols


def schedule(problem: Problem, options: Options) -> Placement:
    """OLS's plan with nodes that do not count what they hold."""
    return ols.schedule(problem, options, adds_node_load=False)
