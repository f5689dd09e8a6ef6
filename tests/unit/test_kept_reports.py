"""A worker's word that its part of an epoch is kept: as long as the limits of a checkpoint let it be, and no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.checkpoint.contract import ENDED, Manifest, Part, Report
from penstock.checkpoint.manifests import encode as encode_manifest
from penstock.checkpoint.parts import TASKS_MAX
from penstock.deploy.line import messages
from penstock.deploy.line.messages import KEPT_BYTES_MAX, REPORT_BYTES_MAX, decode, decode_report, encode_report
from penstock.errors import InvalidInput
from penstock.run.contract import Staged


def report(tasks: int, epoch: int | None = 7) -> Report:
    names = tuple(f"by shop/{t}" for t in range(tasks))
    files = (
        f"/data/sales by shop/_staging/part-{t:05d}-out-5ee5a5705e0fa70b-1-00000007-deadbeef" for t in range(tasks)
    )
    staged = tuple(Staged("out", file, 1000, 123_456) for file in files)
    return Report(1, epoch, Part(3, "parts/00000001/00000007-00003.part", 1 << 20, "0" * 64, names, (), staged))


def test_what_a_manifest_takes_of_a_worker_with_as_many_tasks_as_there_may_be_can_be_told() -> None:
    told = report(TASKS_MAX)
    assert len(encode_manifest(Manifest(7, 1, "sales", {"by shop": TASKS_MAX}, (told.part,)))) > 10 * REPORT_BYTES_MAX
    data = encode_report(told)
    assert decode_report(decode(data, KEPT_BYTES_MAX)) == told
    ended = replace(told, epoch=ENDED)
    assert decode_report(decode(encode_report(ended), KEPT_BYTES_MAX)) == ended


def test_a_report_that_the_driver_would_refuse_is_refused_with_its_size_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "KEPT_BYTES_MAX", REPORT_BYTES_MAX)
    said = (
        r"^the names of 9,000 tasks and 9,000 files of sinks, which worker 3 reports of epoch 7, "
        r"have 1,\d{3},\d{3} bytes; "
        r"the limit is 1,048,576; use more workers, shorten names, or let sinks write fewer files$"
    )
    with pytest.raises(InvalidInput, match=said):
        encode_report(report(9_000))
    with pytest.raises(InvalidInput, match="reports of its end, have"):
        encode_report(report(9_000, ENDED))


def test_sizes_of_states_are_told_unless_there_is_no_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told = replace(report(100), sizes=tuple(range(100)))
    assert decode_report(decode(encode_report(told), KEPT_BYTES_MAX)) == told
    monkeypatch.setattr(messages, "KEPT_BYTES_MAX", len(encode_report(report(100))))
    assert decode_report(decode(encode_report(told), KEPT_BYTES_MAX)) == report(100)
