"""What is of another kind than a function wants is refused with the thing to give, and breaks nothing further in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidInput

TWO = ps.OperatorGraph("two", (ps.Operator("a"), ps.Operator("b")), (ps.Stream("a", "b"),))
NODES = ps.Cluster.uniform([(2, 3.0)])
PLAN = ps.place(TWO, NODES, "even")
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "place": (ps.place, ()),
    "compare": (ps.compare, (["even"],)),
    "fuse": (ps.fuse, ()),
    "check_plan": (ps.check_plan, (PLAN,)),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_a_cluster_or_a_profile_of_another_kind(name: str) -> None:
    call, more = CALLS[name]
    with pytest.raises(InvalidInput, match=r"^cluster got '3x3'; give a penstock\.Cluster, such as penstock\.parse_cl"):
        call(TWO, "3x3", *more)
    with pytest.raises(InvalidInput, match=r"^profile got 'profile.json'; give a penstock\.Profile, such as "):
        call(TWO, NODES, *more, profile="profile.json")


@pytest.mark.parametrize(("name", "wrong"), [("place", ps.FuseOptions()), ("compare", 5), ("fuse", ps.Options())])
def test_options_of_another_kind(name: str, wrong: object) -> None:
    call, more = CALLS[name]
    with pytest.raises(InvalidInput, match=r"^options got .*; give a penstock\.(Fuse)?Options, such as "):
        call(TWO, NODES, *more, options=wrong)


def test_a_name_of_another_kind() -> None:
    wrong: Any = ["best"]
    with pytest.raises(InvalidInput, match=r"^scheduler got \['best'\]; give the name of one, such as 'best'$"):
        ps.place(TWO, NODES, wrong)
    with pytest.raises(InvalidInput, match=r"^method got \['best'\]; give the name of one, such as 'best'$"):
        ps.fuse(TWO, NODES, wrong)
    with pytest.raises(InvalidInput, match=r"^schedulers got 'best'; give a list of names, such as \['best'\]$"):
        ps.compare(TWO, NODES, "best")


def test_a_plan_and_profiles_of_another_kind() -> None:
    wrong: Any = "plan.json"
    with pytest.raises(InvalidInput, match=r"^plan got 'plan.json'; give a penstock\.Plan, such as "):
        ps.check_plan(TWO, NODES, wrong)
    with pytest.raises(InvalidInput, match=r"^cluster got 'plan.json'; give"):
        ps.place_together([TWO], wrong)
    with pytest.raises(InvalidInput, match=r"^profiles got 'plan.json'; give a list of penstock\.Profile"):
        ps.place_together([TWO], NODES, profiles=wrong)


def test_right_kinds_are_taken() -> None:
    assert ps.check_plan(TWO, NODES, PLAN, ps.Profile()) == []
    assert len(ps.compare(TWO, NODES, ("even", "ffd"), profile=ps.Profile(), options=ps.Options())[0]) == 2
