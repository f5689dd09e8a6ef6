"""The operator graph as optimisers see it: which operators exchange anything, read back from the task edges.

Streams that carry nothing are not edges, so an operator that no other stream reaches counts as a source.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import TaskGraph


@dataclass(frozen=True)
class OperatorLinks:
    """Successors and predecessors of each operator, by number, ascending."""

    children: list[list[int]]
    parents: list[list[int]]

    @classmethod
    def of(cls, graph: TaskGraph) -> OperatorLinks:
        """The links between the operators of a task graph."""
        count = len(graph.operators)
        ends = graph.operator_of[graph.source].astype(np.int64) * count + graph.operator_of[graph.target]
        children: list[list[int]] = [[] for _ in range(count)]
        parents: list[list[int]] = [[] for _ in range(count)]
        for pair in np.unique(ends).tolist():
            source, target = divmod(pair, count)
            children[source].append(target)
            parents[target].append(source)
        return cls(children, parents)

    def neighbours(self, operator: int) -> list[int]:
        """Successors, then predecessors."""
        return self.children[operator] + self.parents[operator]

    def breadth_first(self) -> list[int]:
        """All operators: a breadth-first search over both directions from every source that none has reached yet."""
        ordered: list[int] = []
        seen: set[int] = set()
        for source in (k for k, parents in enumerate(self.parents) if not parents):
            if source in seen:
                continue
            seen.add(source)
            queue = [source]
            for operator in queue:  # grows while it is read; ends because an operator enters once
                fresh = [k for k in self.neighbours(operator) if k not in seen]
                seen.update(fresh)
                queue += fresh
            ordered += queue
        return ordered
