"""The transport benchmark's rows as tables that fit a terminal: one line for each transport."""

from __future__ import annotations

from collections.abc import Sequence

from penstock_lab.bench.contract import Row, cell, per_cent


def by_size(rows: Sequence[Row]) -> list[Row]:
    """Latency, one line for each transport."""
    lines: dict[str, Row] = {}
    for row in rows:
        line = lines.setdefault(str(row["transport"]), {"transport": row["transport"]})
        line[f"{row['size_kb']} KB"] = f"{cell(row['p50_us'], 0)} / {cell(row['p99_us'], 0)}"
        if row["size_kb"] == 10:
            line["CPU"], line["idle"] = per_cent(row["cpu_share"]), per_cent(row["idle_cpu_share"])
    return list(lines.values())


def by_producers(rows: Sequence[Row]) -> list[Row]:
    """Throughput, one line for each transport."""
    lines: dict[str, Row] = {}
    for row in rows:
        many = f", {row['producers']} producers" if row["producers"] != 1 else ""
        line = lines.setdefault(str(row["transport"]), {"transport": row["transport"]})
        line[f"{row['size_kb']} KB{many}"] = cell(row["mb_per_s"], 0)
    return list(lines.values())


def batches(rows: Sequence[Row]) -> list[Row]:
    """Arrow batches, one line for each transport."""
    return [
        {
            "transport": row["transport"],
            "64 KB": f"{cell(row['p50_us_64_kb'], 0)} / {cell(row['p99_us_64_kb'], 0)}",
            "1 MB": f"{cell(row['p50_us_1_mb'], 0)} / {cell(row['p99_us_1_mb'], 0)}",
            "64 KB, MB/s": cell(row["mb_per_s"], 0),
            "unread": cell(row["mb_per_s_unread"], 0),
        }
        for row in rows
    ]
