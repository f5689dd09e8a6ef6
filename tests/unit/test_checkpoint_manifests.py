"""Manifests: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import a_part, manifest

from mutation_kit import damaged
from penstock.checkpoint import manifests
from penstock.checkpoint.contract import Manifest, Part
from penstock.errors import CheckpointDamaged, InvalidInput
from penstock.run.contract import Staged

PARTS = [a_part(0, staged=[Staged("out", "/x/part", 3, 99)]), a_part(1, "parts/00000001/7.part")]
WHOLE = replace(manifest(7, PARTS), shown={"out": 4})


def made_up(**fields: object) -> bytes:
    """A manifest with its seal, some of whose fields are not what any writer writes."""
    return manifests.sealed({"penstock": manifests.FORMAT, **manifests.document_of(WHOLE), **fields})


def part(**fields: object) -> dict[str, Any]:
    found: dict[str, Any] = manifests.document_of(WHOLE)["parts"][0]
    return {**found, **fields}


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"penstock": 1}, "not of format 2"),
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
        ({"line": None}, "its line are no list"),
        ({"line": [[1]]}, "where a branch of its history should be"),
        ({"line": [[0, 5]]}, "its attempt is 0"),
        ({"line": [[3, "5"]]}, "its epoch is 5, not a whole number"),
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


def refused(data: bytes) -> str:
    with pytest.raises(CheckpointDamaged) as told:
        manifests.decode(data, "m.json")
    assert told.value.path == "m.json"
    return told.value.fault


TEXTS = st.text(st.characters(), min_size=1, max_size=20)
COUNTS = st.integers(0, manifests.COUNT_MAX)
STAGED = st.builds(Staged, TEXTS, TEXTS, COUNTS, COUNTS)
PARTS = st.integers(0, 99).flatmap(
    lambda worker: st.builds(
        Part,
        st.just(worker),
        st.just(f"parts/00000001/{worker}.part"),
        COUNTS,
        TEXTS,
        st.just(("op/0", "op/1")),
        st.sampled_from([(), ("op/1",), ("op/0", "op/1")]),
        st.lists(STAGED, max_size=2).map(tuple),
    )
)
MANIFESTS = st.builds(
    Manifest,
    st.integers(1, manifests.EPOCH_MAX),
    st.integers(1, manifests.ATTEMPT_MAX),
    TEXTS,
    st.dictionaries(TEXTS, st.integers(1, 1_000), max_size=3),
    st.lists(PARTS, max_size=4, unique_by=lambda part: part.worker).map(tuple),
    st.booleans(),
    st.dictionaries(TEXTS, COUNTS, max_size=3),
    COUNTS,
    st.none() | TEXTS,
)


@given(MANIFESTS)
def test_a_manifest_is_read_as_it_was_written(whole: Manifest) -> None:
    assert manifests.decode(manifests.encode(whole), "m.json") == whole


def test_every_flipped_bit_and_every_cut_of_a_manifest_is_noticed() -> None:
    data = manifests.encode(WHOLE)
    for at in range(len(data)):
        refused(data[:at])
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            refused(bytes(changed))


@given(st.data())
def test_what_was_overwritten_is_refused(data: st.DataObject) -> None:
    whole = manifests.encode(WHOLE)
    begin = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(begin, len(whole)))
    changed = whole[:begin] + data.draw(st.binary(max_size=80)) + whole[end:]
    if changed != whole:
        refused(changed)


@given(damaged({"manifest": manifests.document_of(WHOLE)}))
def test_under_a_right_checksum_too_only_what_a_writer_writes_is_read(documents: dict[str, Any]) -> None:
    document = documents.get("manifest")
    data = manifests.sealed({"penstock": manifests.FORMAT, **(document if isinstance(document, dict) else {})})
    try:
        found = manifests.decode(data, "m.json")
    except CheckpointDamaged:
        return
    assert manifests.decode(manifests.encode(found), "m.json") == found


@pytest.mark.parametrize("body", ["[1", '"x', "nul", '{"penstock":1', "[" * 100_000, '{"a":"\ud800"'])
def test_what_is_sealed_and_no_object_of_this_format_is_refused(body: str) -> None:
    text = body.encode("utf-8", "surrogatepass")
    seal = f"{manifests.SEAL}{manifests._digest(text)}{manifests.SEAL_END}"
    assert refused(text + seal.encode())


def test_what_nobody_could_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, fault in (
        (replace(WHOLE, epoch=0), "epoch 0 cannot be committed: its epoch is 0"),
        (replace(WHOLE, parts=(a_part(0, "../x"),)), "epoch 7 cannot be committed: it names the file '../x'"),
        (replace(WHOLE, parts=(a_part(0), a_part(0))), "two parts of one worker"),
    ):
        with pytest.raises(InvalidInput) as told:
            manifests.encode(wrong)
        assert fault in str(told.value)
    monkeypatch.setattr(manifests, "MANIFEST_BYTES_MAX", 100)
    with pytest.raises(InvalidInput, match="more than 100; let sinks write fewer files"):
        manifests.encode(WHOLE)


def test_the_checksum_is_of_what_the_text_says() -> None:
    data = manifests.encode(WHOLE)
    found = json.loads(data)
    assert [*found][-1] == "checksum"
    assert json.loads(data.replace(b"counts", b"county"))["topology"] == "county"  # sound JSON, and refused
    assert "do not match their checksum" in refused(data.replace(b"counts", b"county"))
