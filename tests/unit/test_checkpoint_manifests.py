"""Manifests: what is written is read again, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import a_part, manifest

from penstock.checkpoint import manifests
from penstock.errors import CheckpointDamaged
from penstock.run.contract import Staged

WHOLE = manifest(7, [a_part(0, staged=[Staged("out", "/x/part", 3, 99)]), a_part(1, "parts/00000001/7.part")])


def made_up(**fields: object) -> bytes:
    """A manifest with its seal, some of whose fields are not what any writer writes."""
    return manifests.sealed({"penstock": manifests.FORMAT, **manifests.document_of(WHOLE), **fields})


def part(**fields: object) -> dict[str, Any]:
    found: dict[str, Any] = manifests.document_of(WHOLE)["parts"][0]
    return {**found, **fields}


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"penstock": 2}, "not of format 1"),
        ({"epoch": 0}, "its epoch is 0, not a whole number from 1"),
        ({"epoch": True}, "its epoch is True"),
        ({"epoch": 7.0}, "its epoch is 7.0"),
        ({"epoch": 10**16}, "its epoch is 10000000000000000"),
        ({"attempt": -1}, "its attempt is -1"),
        ({"attempt": 10**10}, "its attempt is 10000000000"),
        ({"topology": ""}, "its topology is ''"),
        ({"topology": "x" * 5_000}, "not a text of 1 to 4,096 characters"),
        ({"tasks": [1]}, "its tasks are no object"),
        ({"tasks": {"op": 0}}, "its op is 0, not a whole number from 1"),
        ({"tasks": {"": 1}}, "its tasks is ''"),
        ({"is_last": 1}, "its is_last is 1, neither true nor false"),
        ({"worker_of": {"op/0": -1}}, "its op/0 is -1"),
        ({"worker_of": None}, "its worker_of are no object"),
        ({"written_us": -5}, "its written_us is -5"),
        ({"written_us": 1 << 63}, "its written_us is 9223372036854775808"),
        ({"name": 3}, "its name is '3'"),
        ({"parts": {}}, "its parts are no list"),
        ({"parts": [3]}, "it has 3 where a part should be"),
        ({"parts": [part(), part(path="parts/other")]}, "two parts of one worker"),
        ({"parts": [part(worker="0")]}, "its worker is 0"),
        ({"parts": [part(size=-1)]}, "its size is -1"),
        ({"parts": [part(checksum=None)]}, "its checksum is 'None'"),
        ({"parts": [part(tasks="op/0")]}, "its tasks are no list"),
        ({"parts": [part(tasks=[1])]}, "its tasks is '1'"),
        ({"parts": [part(finished=["op/9"])]}, "finished tasks that part"),
        ({"parts": [part(staged=[["out", "/x", 1]])]}, "where a staged file should be"),
        ({"parts": [part(staged=[["out", "/x", -1, 1]])]}, "its rows is -1"),
        ({"parts": [part(staged=[["out", "/x", 1, "1"]])]}, "its size is 1"),
        ({"parts": [part(staged=[[None, "/x", 1, 1]])]}, "its sink is 'None'"),
        ({"parts": [part(staged=[["out", "", 1, 1]])]}, "its path is ''"),
        *(
            ({"parts": [part(path=path)]}, "which is not one beneath parts/")
            for path in (
                "/etc/passwd",
                "manifests/00000001.json",
                "parts",
                "parts/",
                "parts/../job.json",
                "parts/./x",
                "parts//x",
                "../parts/x",
                "parts/a\\..\\x",
                "parts/a\0",
                "PARTS/x",
            )
        ),
    ],
)
def test_a_manifest_that_was_made_up_is_refused(fields: dict[str, Any], fault: str) -> None:
    assert manifests.decode(made_up(), "m.json") == WHOLE
    with pytest.raises(CheckpointDamaged) as refused:
        manifests.decode(made_up(**fields), "m.json")
    assert refused.value.path == "m.json"
    assert fault in refused.value.fault
