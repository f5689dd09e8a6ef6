"""Which replicas are starved by what else their workers have to do."""

from __future__ import annotations

from penstock.adapt.starved import Replica, starved_tasks
from penstock.model.plan import Slot

A, B, C = (Slot("n1", k) for k in range(3))
PLACES = {"double/0": A, "double/1": B, "double/2": C, "other/0": A, "source/0": B}


def replicas(*weights: float, waited: float = 0.3) -> list[Replica]:
    return [Replica((f"double/{i}",), weight, waited / len(weights)) for i, weight in enumerate(weights)]


def test_a_replica_with_less_than_its_share_on_a_full_worker_is_starved() -> None:
    assert starved_tasks([replicas(200, 400, 400)], PLACES, frozenset({A})) == {"double/0"}
    chain = [Replica(("double/0", "print/0"), 100, 0.2), Replica(("double/1", "print/1"), 900, 0.1)]
    assert starved_tasks([chain], {**PLACES, "print/0": A, "print/1": B}, frozenset({A})) == {"double/0", "print/0"}


def test_what_balancing_makes_good_starves_nobody() -> None:
    assert starved_tasks([replicas(200, 400, 400, waited=0.01)], PLACES, frozenset({A})) == frozenset()


def test_a_replica_of_an_idle_worker_or_of_one_to_itself_has_all_that_there_is() -> None:
    assert starved_tasks([replicas(200, 400, 400)], PLACES, frozenset({B, C})) == frozenset()
    assert starved_tasks([replicas(400, 400, 200)], PLACES, frozenset({C})) == frozenset()
    assert starved_tasks([replicas(330, 330, 340)], PLACES, frozenset({A, B, C})) == frozenset()
    assert starved_tasks([[]], PLACES, frozenset({A})) == frozenset()
