"""What an adapter sees of a job at one time: measurements of the last interval as one `Look`.

Speeds, full workers and starved replicas come from the metric log, sizes of state from what workers last said of their
parts of an epoch, pauses from the times that the job has gone over before. What is remembered of slow workers from look
to look is by node and worker, as long as the job's processes are the same under the same numbers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.adapt.contract import AdaptSettings, Look
from penstock.adapt.core_shares import CoreTime, Slow, able_workers, full_workers, slow_after
from penstock.adapt.held_back import Free, as_free, free_after, held_back
from penstock.adapt.starved import Replica, starved_tasks
from penstock.deploy.attempt.crossing import Crossing
from penstock.deploy.driver.binding import scene_of
from penstock.deploy.driver.slots import USABLE_SHARE, Slots
from penstock.deploy.line.messages import Hello
from penstock.deploy.metrics.metric_log import MetricLog
from penstock.deploy.metrics.sums import Sums
from penstock.model.plan import Slot
from penstock.model.profile import Profile
from penstock.model.task_id import TaskId
from penstock.optimise.calibrated_costs import known_costs
from penstock.run.dataflow import Dataflow

if TYPE_CHECKING:
    from penstock.deploy.driver.job import Job

PAUSES = 5  # the last ones, of which the middle one is expected the next time


@dataclass(slots=True)
class Looks:
    """What is known of one job beside its metrics, and what one look leaves to the next."""

    settings: AdaptSettings
    crossings: Sequence[Crossing] = ()  # of the job so far; it grows
    state_bytes: Mapping[str, int] = field(default_factory=dict)  # of tasks, as last saved; it changes
    slow: dict[Slot, Slow] = field(default_factory=dict)
    processes: tuple[tuple[str, int], ...] = ()  # by worker
    free: Free | None = None

    def at(self, job: Job, workers: Sequence[Hello], metrics: MetricLog) -> Look | None:
        """What there is to see; NotMeasuredYet before workers have measured anything in this interval."""
        plan = job.plan  # these workers', unless another placement is found at the end of the look
        if plan is None or not workers:
            return None
        now_s, interval_s = time.monotonic(), self.settings.interval_s
        profile, slots = job.profile(interval_s), job.slots_of_workers()
        graph, cluster, demands = scene_of(job.dataflow, slots, profile, plan.constraints)
        sums = metrics.recent(interval_s)
        times = core_times(sums, slots)
        full = full_workers(times)
        profile, done = self._free(profile, now_s, is_full=bool(full))
        latency_us = metrics.latency_us(0.99, interval_s)
        state = {task: float(size) for task, size in dict(self.state_bytes).items() if task in plan.assignment}
        return Look(
            now_s=now_s,
            graph=graph,
            cluster=cluster,
            assignment=plan.assignment,
            profile=profile if profile.costs is not None else replace(profile, costs=known_costs()),
            demands=demands,
            usable_share=USABLE_SHARE,
            state_bytes=state,
            latency_us=float(latency_us) if latency_us else None,
            speed=self._speeds(workers, times, now_s),
            able=able_workers(times),
            done=done,
            full=full,
            starved=starved_tasks(replicas(job.dataflow, sums), plan.assignment, full),
            pause_s=self._pause_s(),
        )

    def _speeds(self, workers: Sequence[Hello], times: Mapping[Slot, CoreTime], now_s: float) -> dict[Slot, float]:
        processes = tuple((hello.address, hello.pid) for hello in workers)
        if processes != self.processes:  # a worker's name may be another one's now, and its core too
            self.slow, self.processes = {}, processes
        self.slow = slow_after(self.slow, times, now_s, self.settings.horizon_s)
        return {slot: known.speed for slot, known in self.slow.items()}

    def _free(self, profile: Profile, now_s: float, *, is_full: bool) -> tuple[Profile, float]:
        """The profile of a job that nothing holds back, and what share of that the job does."""
        self.free = free_after(self.free, profile, now_s, self.settings.horizon_s, is_full=is_full)
        done = held_back(profile, self.free, is_full=is_full)
        return as_free(profile, done), done

    def _pause_s(self) -> float | None:
        took = [crossing.seconds for crossing in tuple(self.crossings)[-PAUSES:]]
        return statistics.median(took) if took else None


def core_times(sums: Sums, slots: Slots) -> dict[Slot, CoreTime]:
    """What the thread of each worker had of its core."""
    return {
        slots.slot(worker): CoreTime(*(counts[of] / 1e6 for of in ("interval_us", "cpu_us", "delayed_us")))
        for worker, counts in sums.workers.items()
        if worker < len(slots.node_of)
    }


def replicas(dataflow: Dataflow, sums: Sums) -> list[list[Replica]]:
    """Of each region of which splitters have told anything, the replicas that take part."""
    found = []
    for region in dataflow.regions():
        parts = [o for o in dataflow.operators if o.region is not None and o.region.region == region]
        chain = [o.name for o in parts if o.region is not None and o.region.role == "replica"]
        told = {replica: last for (name, replica), last in sorted(sums.balance.items()) if name == region}
        found.append(
            [
                Replica(tuple(TaskId.of(name, replica) for name in chain), float(last.weight), last.rate)
                for replica, last in told.items()
                if last.weight > 0
            ]
        )
    return found
