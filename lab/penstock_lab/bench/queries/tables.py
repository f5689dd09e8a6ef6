"""The query benchmark's rows as tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from penstock_lab.bench.contract import Row

RATES = {
    "files": "files_events_per_s",
    "frame": "DataFrame_events_per_s",
    "streaming": "streaming_events_per_s",
    "batch": "batch_events_per_s",
}
PLACEMENTS = {"default": "files", "even": "even", "one_worker": "1 worker"}


def by_query(rows: Sequence[Row]) -> list[Row]:
    """One line for each query."""
    return [
        {
            "query": f"{row['query']} {row['title']}",
            **{short: thousands(row[name]) for short, name in RATES.items()},
            "ratio": times(row["ratio"]),
            "CPU": times(row["cpu_ratio"]),
            "aim": times(row["aim"]),
            "verdict": row["verdict"],
            "answers": answers(row["answers"], row["whole_answer"]),
        }
        for row in rows
    ]


def by_form(rows: Sequence[Row]) -> list[Row]:
    """One line for each form of a query."""
    engines = ("files", "DataFrame", "UDF", "mapInArrow", "mapInPandas")
    return [
        {
            "query": row["query"],
            "instance": row["form"],
            **{engine: thousands(row.get(engine)) for engine in engines},
            "ratio": times(row["ratio"]),
            "frame ratio": times(row["frame_ratio"]),
        }
        for row in rows
    ]


def by_placement(rows: Sequence[Row]) -> list[Row]:
    """One line for each query: seconds under the default scheduler and under what it should not be slower than."""
    return [
        {
            "query": row["query"],
            **{engine: _seconds(row[f"{short}_seconds"]) for short, engine in PLACEMENTS.items()},
            "to even": times(row["to_even"]),
            "to 1 worker": times(row["to_one_worker"]),
            "verdict": row["verdict"],
        }
        for row in rows
    ]


def _seconds(median: object) -> str:
    return f"{median:.2f}" if isinstance(median, float) else "-"


def thousands(rate: object) -> str:
    """Events a second, in thousands."""
    return f"{rate / 1000:,.0f}" if isinstance(rate, float) else "-"


def times(ratio: object) -> str:
    """A ratio; from ten on, without decimals."""
    if not isinstance(ratio, float):
        return "-"
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"


def answers(found: object, whole: object) -> str:
    """Whether all engines agree; notes name those that do not."""
    texts = [text for text in (found.values() if isinstance(found, dict) else ()) if text is not None]
    texts += [str(whole)] if whole else []
    if not texts:
        return "-"
    return "same" if all(text.startswith("same") for text in texts) else "differ"
