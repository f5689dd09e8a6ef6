"""Membership of a region: replicas that join and leave while it runs, and their meters since they joined.

A region is built with the most replicas that it may ever have, and the first ones are active. The others are tasks like
any, with connections and a window, that get watermarks and the end and no rows. So joining and leaving are a change of
weights between two slices: numbers go on, a replica that leaves works off what it has, and the merger, which knows
numbers and not replicas, needs no notice. Rejected: starting tasks in a running job, because a job has no slots but
those that it was given at the start.

The last to join is the first to leave, so that a number says which replicas are active. A replica that comes back is
new to the policies: its cumulative meters are shown from when it came back
(`test_who_comes_back_is_shown_what_was_counted_since`).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InternalError
from penstock.run.region.contract import Sample

Meters = tuple[float, float, float]  # of one replica: seconds blocked, rows worked off, seconds that those took
SCALE = "scale"  # what the driver says: `scale COUNT REGION`


class Membership:
    """The active replicas of one region, of those that were built.

    >>> members = Membership(most=3, active=1)
    >>> members.ask(2)
    >>> members.follow([(9.0, 500.0, 8.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)])
    True
    >>> members.sample(1.0, [(9.5, 600.0, 9.0), (0.25, 40.0, 0.5), (0.0, 0.0, 0.0)])
    Sample(time_s=1.0, replicas=(0, 1), blocked_s=(9.5, 0.25), sent=(600.0, 40.0), took_s=(9.0, 0.5))
    """

    def __init__(self, most: int, active: int) -> None:
        self.most = most
        self.names = tuple(range(active))
        self._wanted = active
        self._base: list[Meters] = [(0.0, 0.0, 0.0)] * most  # what no policy is shown: before it joined, or left out
        self._shown: list[Meters] = [(0.0, 0.0, 0.0)] * most  # at the last sample

    @property
    def changes(self) -> bool:
        """Whether a replica is to join or leave."""
        return self._wanted != len(self.names)

    def ask(self, count: int) -> None:
        """Set how many are to be active from the next `follow` on."""
        if not 1 <= count <= self.most:
            msg = f"a region of at most {self.most} replicas was asked for {count}; its driver should have refused that"
            raise InternalError(msg)
        self._wanted = count

    def follow(self, meters: Sequence[Meters]) -> bool:
        """Let replicas join or leave as asked, given every replica's meters; whether one did."""
        if not self.changes:
            return False
        for joining in range(len(self.names), self._wanted):
            self._base[joining] = meters[joining]
        self.names = tuple(range(self._wanted))
        return True

    def leave_out(self, meters: Sequence[Meters]) -> None:
        """What was counted since the last sample belongs to no interval: its time is not observed."""
        for replica, (now, then) in enumerate(zip(meters, self._shown, strict=True)):
            base = self._base[replica]
            self._base[replica] = (base[0] + now[0] - then[0], base[1] + now[1] - then[1], base[2] + now[2] - then[2])
        self._shown = list(meters)

    def sample(self, time_s: float, meters: Sequence[Meters]) -> Sample:
        """A sample of the active replicas, from every replica's meters."""
        self._shown = list(meters)
        since = [tuple(now - then for now, then in zip(meters[r], self._base[r], strict=True)) for r in self.names]
        return Sample(time_s, self.names, *zip(*since, strict=True))


def scale_command(region: str, replicas: int) -> str:
    """The command by which a driver asks a region for replicas; the name comes last, as it may be any text."""
    return f"{SCALE} {replicas} {region}"


def asked_scale(command: str) -> tuple[str, int] | None:
    """The region and the number of a command that scales one; None for other commands."""
    word, _, rest = command.partition(" ")
    count, _, region = rest.partition(" ")
    return (region, int(count)) if word == SCALE and count.isdecimal() else None
