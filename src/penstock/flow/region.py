"""Parallel regions in the API: `stream.parallel(n)`, operators that look at one row or batch at a time, `.merge()`.

    >>> import penstock as ps
    >>> top = ps.Topology("numbers")
    >>> numbers = top.source("numbers", ps.io.generator(lambda task, tasks: range(9), "n bigint"))
    >>> numbers.parallel(3).filter(lambda row: row.n > 4, name="large").merge().sink("out", ps.io.collect())
    >>> [(operator.name, operator.tasks) for operator in top.build().operators]
    [('numbers', 1), ('parallel1.split', 1), ('large', 3), ('parallel1.merge', 1)]

Operators between `parallel` and `merge` run as n replicas. Order out is order in; with `ordered=False` there is no
merger. Users write the end down, because it decides what works in parallel: a filter before the merge, not after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn, get_args

import pyarrow as pa

from penstock.errors import InvalidInput, NoSuchOperator
from penstock.flow.checks import require_callable, require_count, require_number
from penstock.flow.io import Sink
from penstock.flow.stream import DataStream
from penstock.flow.unknown import KEYED
from penstock.run.contract import MAIN, Build
from penstock.run.dataflow import FORWARD, ColumnUse, Grouping, Input, RegionPart, StateFacts
from penstock.run.operators.times import Duration
from penstock.run.region.blocking_rate import Charged
from penstock.run.region.contract import REPLICAS_MAX, Policy, checked_weights
from penstock.run.region.policies import find_policy, require_policy
from penstock.run.region.policies.oracle import Known, Oracle
from penstock.run.region.tasks import MergerTask, SplitterSettings, SplitterTask

SLICE_ROWS_MAX = 1_000_000
SAMPLE_S_MIN, SAMPLE_S_MAX = 1e-4, 86_400.0  # below, a splitter would do nothing but sample
WITH_KEYS = "operators with keys have state, which replicas do not share"
BALANCE_DEFAULT = "knee"
Balance = str | Callable[[], Policy]


@dataclass(frozen=True, eq=False, repr=False)
class RegionStream(DataStream):
    """Rows inside a parallel region."""

    region: str = ""
    replicas: int = 1  # that are built; not all of them need be active
    ordered: bool = True
    begun: bool = False  # there is an operator behind the splitter

    def merge(self) -> DataStream:
        """The end of the region: the rows in the order in which they went in, where it is ordered."""
        if not self.begun:
            msg = f"region {self.region!r} has no operators; write at least one between parallel() and merge()"
            raise InvalidInput(msg)
        if not self.ordered:
            return self._plain(self.operator)
        spec = self.topology.add(
            "merge",
            MergerTask,
            name=f"{self.region}.merge",
            inputs=[Input(self.operator, MAIN, Grouping("global"))],
            outputs={MAIN: self.schema},
            region=RegionPart(self.region, "merger"),
        )
        return self._plain(spec.name)

    def _plain(self, operator: str) -> DataStream:
        return DataStream(
            self.topology, operator, self.schema, MAIN, self.bounded, self.time_column, self.keys, self.windowed
        )

    def then(
        self,
        kind: str,
        build: Build,
        outputs: dict[str, pa.Schema],
        *,
        name: str | None,
        tasks: int,
        keys: tuple[str, ...] = (),
        state: StateFacts | None = None,
        grouping: Grouping | None = None,
        also: Sequence[tuple[DataStream, Input]] = (),
        columns: ColumnUse | None = None,
    ) -> RegionStream:
        """An operator that every replica has."""
        if state is not None or also:
            self._refuse(kind, "only operators that look at one row or batch at a time can be replicated")
        if tasks not in {1, self.replicas}:
            why = f"all operators there have {self.replicas} tasks, one for each replica"
            self._refuse(f"{kind} with tasks={tasks!r}", why, "leave tasks= out")
        read = Grouping(FORWARD) if self.begun else Grouping("shuffle")
        spec = self.topology.add(
            kind,
            build,
            name=name,
            tasks=self.replicas,
            inputs=[Input(self.operator, self.output, read)],
            outputs=outputs,
            region=RegionPart(self.region, "replica", self.ordered),
            columns=columns,
        )
        time_column = self._kept_time(outputs[MAIN])
        windowed = self.windowed and time_column is not None
        return replace(
            self,
            operator=spec.name,
            schema=outputs[MAIN],
            keys=keys,
            time_column=time_column,
            windowed=windowed,
            edition=None,
            begun=True,
        )

    def sink(self, name: str | Sink, sink: Sink | None = None, tasks: int | None = None, **_: object) -> None:
        """Refused: a region ends with merge()."""
        self._refuse(f"sink {name!r}", "rows leave a region through merge()")

    def regrouped(self, grouping: Grouping) -> NoReturn:
        """Refused: inside a region every replica sends to itself."""
        self._refuse(f"a {grouping.kind} grouping", "replicas send to themselves")

    def event_time(self, column: str, lateness: Duration | None = None) -> NoReturn:
        """Refused: a replica sees a part of the rows, and what is held for the sake of order would come out late."""
        why = "a region passes watermarks on and makes none"
        self._refuse("event_time", why, "call event_time before parallel() or after merge()")

    def union(self, *others: DataStream, **_: object) -> NoReturn:
        """Refused: rows of other streams have no place in this one's order."""
        self._refuse("union", "rows of other streams have no place in its order")

    def key_by(self, *columns: str) -> NoReturn:
        """Refused: operators with keys have state."""
        self._refuse("key_by", WITH_KEYS)

    def count(self, **_: object) -> NoReturn:
        """Refused: one task counts."""
        error = self._unknown("count")
        raise error

    def aggregate(self, *_: object, **__: object) -> NoReturn:
        """Refused: one task sees all rows of a key."""
        error = self._unknown("aggregate")
        raise error

    def parallel(self, *_: object, **__: object) -> NoReturn:
        """Refused: regions do not nest."""
        self._refuse("parallel", "regions do not nest")

    def _unknown(self, name: str) -> NoSuchOperator:
        if name not in KEYED:
            return super()._unknown(name)
        keyed = f"key_by('column').{name}"
        without = f"leave parallel() out and write {keyed}(..., tasks={self.replicas})"
        return NoSuchOperator(self._refusal(name, WITH_KEYS, f"write merge().{keyed}(...)" if self.begun else without))

    def _refuse(self, what: str, why: str, instead: str | None = None) -> NoReturn:
        if instead is None:
            instead = "call merge() before it" if self.begun else "write the region's operators and merge() before it"
        raise InvalidInput(self._refusal(what, why, instead))

    def _refusal(self, what: str, why: str, instead: str) -> str:
        kind = "ordered" if self.ordered else "unordered"
        return f"{what} of {self.operator!r} is inside the {kind} region {self.region!r}: {why}; {instead}"


def parallel(
    stream: DataStream,
    replicas: int,
    *,
    at_most: int | None,
    ordered: bool,
    balance: Balance | None,
    blocking: Charged,
    weights: Sequence[float] | None,
    sample_s: float,
    slice_rows: int | None,
    name: str | None,
) -> RegionStream:
    """Begin a region behind a stream; see `DataStream.parallel`."""
    who = f"parallel of {stream.operator!r}"
    require_count(replicas, 1, REPLICAS_MAX, f"number of replicas of {who}")
    most = replicas if at_most is None else at_most
    require_count(most, replicas, REPLICAS_MAX, f"at_most of {who}")
    if slice_rows is not None:
        require_count(slice_rows, 1, SLICE_ROWS_MAX, f"slice_rows of {who}")
    require_number(sample_s, SAMPLE_S_MIN, SAMPLE_S_MAX, f"sample_s of {who}, in seconds,")
    if blocking not in get_args(Charged):
        raise InvalidInput.unknown_name(kind=f"blocking of {who}:", name=str(blocking), known=get_args(Charged))
    if name is not None and not (isinstance(name, str) and name):
        msg = f"name of {who} is {name!r}; give text, or leave it out"
        raise InvalidInput(msg)
    if weights is not None and most > replicas:
        msg = f"{who} has weights for {replicas} replicas and at_most={most}; leave one of them out"
        raise InvalidInput(msg)
    policy = _policy(who, replicas, balance, weights)
    region = stream.topology.free_name("parallel") if name is None else name
    settings = SplitterSettings(region, most, policy, ordered, float(sample_s), slice_rows, replicas, blocking)
    spec = stream.topology.add(
        "split",
        partial(SplitterTask, settings),
        name=f"{region}.split",
        inputs=[stream.read(Grouping("global"))],
        outputs={MAIN: stream.schema},
        region=RegionPart(region, "splitter", ordered),
    )
    return RegionStream(
        stream.topology,
        spec.name,
        stream.schema,
        MAIN,
        stream.bounded,
        stream.time_column,
        stream.keys,
        stream.windowed,
        region=region,
        replicas=most,
        ordered=ordered,
    )


def _policy(who: str, replicas: int, balance: Balance | None, weights: Sequence[float] | None) -> Callable[[], Policy]:
    if weights is not None:
        if balance is not None:
            msg = f"{who} has balance={balance!r} and weights={weights!r}, which fix the shares; leave one of them out"
            raise InvalidInput(msg)
        shares = _shares(weights)
        if len(shares) != replicas or not all(math.isfinite(share) and share >= 0 for share in shares):
            msg = f"weights of {who} are {weights!r}; give {replicas} shares from 0 to 1, one for each replica"
            raise InvalidInput(msg)
        return partial(Oracle, (Known(0.0, dict(enumerate(map(float, checked_weights(shares))))),))
    balance = BALANCE_DEFAULT if balance is None else balance
    build = find_policy(balance).build if isinstance(balance, str) else balance
    require_callable(build, f"balance of {who}", "a policy's name, or a function that makes a policy")
    require_policy(build(), f"balance of {who}")
    return build


def _shares(weights: object) -> list[float]:
    """Whatever a user gave as numbers; none where it is not numbers."""
    try:
        return [float(share) for share in weights]  # type: ignore[attr-defined] # that is what is tried
    except (TypeError, ValueError):
        return []
