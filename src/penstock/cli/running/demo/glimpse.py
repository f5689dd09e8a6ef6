"""What can be seen of a running job at one moment: where its tasks are and what its streams carry. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.model.plan import Slot
from penstock.model.profile import Profile
from penstock.model.task_id import operator_of

Stream = tuple[str, str]  # from operator to operator


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes per second of one stream."""

    whole: float = 0.0
    between_nodes: float = 0.0


@dataclass(frozen=True, slots=True)
class Glimpse:
    """One moment; rates are means over the last seconds."""

    scheduler: str  # whose plan the job follows
    assignment: Mapping[str, Slot]
    traffic: Mapping[Stream, Traffic]
    rows_per_second: float = 0.0
    p50_ms: float | None = None  # None: no row has come out in this time
    p99_ms: float | None = None

    @classmethod
    def of(
        cls,
        scheduler: str,
        assignment: Mapping[str, Slot],
        streams: Sequence[Stream],
        profile: Profile,
        latency_us: tuple[int, int],
    ) -> Glimpse:
        """What a profile says of tasks that are there."""
        whole, between = dict.fromkeys(streams, 0.0), dict.fromkeys(streams, 0.0)
        for edge in profile.edges:
            stream = operator_of(edge.source), operator_of(edge.target)
            whole[stream] = whole.get(stream, 0.0) + edge.rate
            if assignment[edge.source].node != assignment[edge.target].node:
                between[stream] = between.get(stream, 0.0) + edge.rate
        p50, p99 = (None if us == 0 else us / 1000 for us in latency_us)
        traffic = {stream: Traffic(whole[stream], between.get(stream, 0.0)) for stream in whole}
        return cls(scheduler, dict(assignment), traffic, profile.rows_per_second or 0.0, p50, p99)

    @property
    def between_nodes(self) -> float:
        """Bytes per second between nodes, of all streams."""
        return sum(traffic.between_nodes for traffic in self.traffic.values())

    @property
    def nodes(self) -> list[str]:
        """The nodes that have tasks, in order."""
        return sorted({slot.node for slot in self.assignment.values()}, key=lambda name: (len(name), name))

    @property
    def workers(self) -> int:
        """Worker processes that have tasks."""
        return len(set(self.assignment.values()))

    def tasks_on(self, operator: str, node: str) -> int:
        """How many tasks of an operator are on a node."""
        return sum(operator_of(task) == operator and slot.node == node for task, slot in self.assignment.items())

    def moved_to(self, other: Glimpse) -> list[str]:
        """Tasks that are elsewhere in another one."""
        return [task for task, slot in self.assignment.items() if other.assignment[task] != slot]

    def document(self) -> dict[str, object]:
        """For programs."""
        return {
            "scheduler": self.scheduler,
            "nodes": len(self.nodes),
            "workers": self.workers,
            "between_nodes": round(self.between_nodes, 1),  # bytes per second
            "rows_per_second": round(self.rows_per_second, 1),
            "latency_ms": {"p50": self.p50_ms, "p99": self.p99_ms},
            "streams": [
                {"from": source, "to": target, "rate": round(t.whole, 1), "between_nodes": round(t.between_nodes, 1)}
                for (source, target), t in self.traffic.items()
            ],
        }
