"""Cells of a notebook that are run again: what is replaced, what is left out, and what is told."""

from __future__ import annotations

from typing import Any

import pytest
from worker_kit import LocalJob

import penstock as ps
from penstock.errors import InvalidInput


class Notebook:
    """Cells as functions that keep their streams in variables, as a notebook does."""

    def __init__(self, named: bool = False) -> None:
        self.top = ps.Topology("words")
        self.at: dict[str, Any] = {}
        self.name = (lambda name: name) if named else (lambda name: None)

    def lines(self, text: str = "a b a") -> Notebook:
        source = ps.io.generator(lambda task, tasks: [(text,)], "line string")
        self.at["lines"] = self.top.source("lines", source)
        return self

    def words(self, separator: str = " ", schema: str = "word string") -> Notebook:
        self.at["words"] = self.at["lines"].flat_map(
            lambda row: row.line.split(separator), schema, name=self.name("words")
        )
        return self

    def counts(self, sink: str = "out") -> Notebook:
        counts = self.at["words"].key_by("word").count(name=self.name("counts"))
        counts.sink(sink, ps.io.collect())
        return self

    def answer(self, sink: str = "out") -> dict[object, object]:
        return {row["word"]: row["count"] for row in LocalJob(self.top.build(), 1).run().rows(sink)}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("again", ["words counts", "lines words counts", "counts", "words words counts counts"])
def test_cells_that_are_run_again_count_once(named: bool, again: str) -> None:
    book = Notebook(named).lines().words().counts()
    for cell in again.split():
        getattr(book, cell)()
    assert book.answer() == {"a": 2, "b": 1}
    assert len(book.top.build().operators) == 3
    assert book.top.notes, "it is told"


def test_what_a_cell_was_changed_to_counts() -> None:
    book = Notebook().lines("a-b a").words().counts().words("-").counts()
    assert book.answer() == {"a": 1, "b a": 1}
    assert book.top.notes == (
        "'count1' is left out: nobody reads it, and 'count2' is in its place",
        "'flat_map1' is left out: nobody reads it, and 'flat_map2' is in its place",
        "defined more than once, of which the last counts: 'out'",
    )
    assert Notebook().lines().words().counts().top.notes == ()


def test_a_source_that_is_defined_again_frees_the_names_that_hung_on_it() -> None:
    book = Notebook().lines().words().counts().lines("c").words().counts()
    assert [operator.name for operator in book.top.build().operators] == ["lines", "flat_map1", "count1"]
    assert book.answer() == {"c": 1}


def test_readers_of_an_earlier_definition_are_told_instead_of_being_lost() -> None:
    book = Notebook(named=True).lines().words().counts().words("-")
    message = (
        r"'counts' read what 'words' was before it was defined again; write 'counts' again, by running its cell, or "
        r"call remove\('counts'\); 'out' read what 'words' was"
    )
    with pytest.raises(InvalidInput, match=message):
        book.top.build()
    book.counts("other")
    with pytest.raises(InvalidInput, match=r"^'out' read what 'words' was before"):
        book.top.build()
    book.top.remove("out")  # it is not wanted any more
    assert book.answer("other") == {"a b a": 1}


def test_a_cell_whose_readers_were_not_run_again_is_told_like_a_forgotten_sink() -> None:
    book = Notebook().lines().words().counts().words("-")
    with pytest.raises(InvalidInput, match=r"nobody reads 'flat_map2'; .* or take it out with remove\('flat_map2'\)"):
        book.top.build()
    book.top.remove("flat_map2")
    assert book.answer() == {"a": 2, "b": 1}


def test_a_stream_of_an_earlier_definition_is_refused() -> None:
    """Else a join of two sources that were given one name by mistake would be of the second with itself."""
    top = ps.Topology("two")
    left, right = (top.source("rows", ps.io.rate(1, rows=rows)) for rows in (1, 2))
    with pytest.raises(InvalidInput, match="this stream is of 'rows' as it was before it was defined again; go on"):
        left.union(right)
    with pytest.raises(InvalidInput, match="this stream is of 'rows'"):
        left.shuffle().sink("out", ps.io.discard())
    narrow = right.select("value")
    top.remove("select1")
    with pytest.raises(InvalidInput, match="'select1' is no longer in topology 'two': it was removed, or what it read"):
        narrow.sink("out", ps.io.discard())


def test_another_operator_may_not_take_a_name() -> None:
    book = Notebook(named=True).lines().words().counts()
    lines = book.at["lines"]
    for mistake in (
        lambda: lines.sink("out", ps.io.discard()),  # of another stream
        lambda: lines.select("line", name="counts"),  # reads something else
        lambda: book.top.source("words", ps.io.rate(1)),  # another role
    ):
        with pytest.raises(InvalidInput, match=r"already; names must be unique, so choose another or call remove\("):
            mistake()
    assert book.answer() == {"a": 2, "b": 1}, "and nothing has changed"


def test_two_operators_of_one_kind_are_no_rerun_when_both_are_read_or_the_later_is_not() -> None:
    top = ps.Topology("both")
    rows = top.source("rows", ps.io.rate(1, rows=3))
    first, second = rows.select("value"), rows.select("value")
    first.sink("one", ps.io.discard())
    with pytest.raises(InvalidInput, match="nobody reads 'select2'"):
        top.build()
    second.sink("two", ps.io.discard())
    assert [operator.name for operator in top.build().operators] == ["rows", "select1", "select2"]
    assert top.notes == ()
    named = rows.select("value", name="mine")
    assert named.operator == "mine"
    rows.select("value", name="other").sink("three", ps.io.discard())
    with pytest.raises(InvalidInput, match="nobody reads 'mine'"):
        top.build()


def test_a_parallel_region_is_replaced_as_a_whole() -> None:
    top = ps.Topology("region")
    rows = top.source("rows", ps.io.rate(1, rows=3))
    for _ in range(2):
        merged = rows.parallel(2).filter(lambda row: True).merge()
        merged.sink("out", ps.io.discard())
    assert [operator.name for operator in top.build().operators] == [
        "rows", "parallel2.split", "filter2", "parallel2.merge"
    ]  # fmt: skip


def test_removing_takes_readers_along_and_names_what_there_is() -> None:
    book = Notebook(named=True).lines().words().counts()
    with pytest.raises(InvalidInput, match="unknown operator or sink 'word'; known: counts, lines, out, words"):
        book.top.remove("word")
    book.top.remove("words")
    assert repr(book.top) == "Topology('words', operators=[lines])"
    with pytest.raises(InvalidInput, match="has no sink"):
        book.top.build()


def test_event_time_may_be_said_again_in_the_same_words() -> None:
    top = ps.Topology("timed")
    rows = top.source("rows", ps.io.rate(1, rows=3))
    rows.event_time("timestamp", "1 second")
    rows.event_time("timestamp", "1 second").sink("out", ps.io.discard())
    assert len(top.build().operators) == 1
    with pytest.raises(InvalidInput, match="has event time on 'timestamp' already"):
        rows.event_time("timestamp", "2 seconds")
