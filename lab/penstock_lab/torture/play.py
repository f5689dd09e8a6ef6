"""The process of one line's trials: a Spark session, and a row of JSON on stdout for each seed.

    python -m penstock_lab.torture.play ORDER.json    # {"line": ..., "seeds": [...], "folder": ...}

A trial may take its session with it, or the whole process; who has started it sees that by the rows that are missing.
Whatever else is printed here or below goes to stderr.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock_lab.torture import damage, floods, killed_moves, kills, load, moves, programs, surroundings
from penstock_lab.torture.contract import HELD, Line
from penstock_lab.torture.lines import find_line
from penstock_lab.torture.trial import Trial, judged

TRIALS: dict[str, Callable[[Trial], None]] = {
    **kills.TRIALS,
    **moves.TRIALS,
    **killed_moves.TRIALS,
    **damage.TRIALS,
    **surroundings.TRIALS,
    **programs.TRIALS,
    **floods.TRIALS,
    **load.TRIALS,
}
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"  # short lives: no costly compiler


def session(line: Line, folder: Path) -> Any:  # noqa: ANN401 # a SparkSession, or None
    """The line's Spark session, warm: its Python workers have been there once."""
    if line.master is None:
        return None
    from penstock.deploy import local_session

    spark = local_session(line.master, java_options=JAVA)
    if "libfaketime" in line.needs:
        clock = folder / surroundings.CLOCK_FILE
        surroundings.jumped(clock, 0)
        spark.sparkContext.environment.update(surroundings.clock_settings(clock))
    spark.sparkContext.parallelize(range(8), 8).count()
    return spark


def main(words: list[str]) -> int:
    """Play the order."""
    order = json.loads(Path(words[0]).read_text())
    rows = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    line = find_line(order["line"])
    spark = session(line, Path(order["folder"]))
    for seed in order["seeds"]:
        folder = Path(order["folder"]) / f"{line.name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        trial = Trial(spark, line.name, seed, folder)
        trial.minutes = order.get("minutes", 0.0)
        with judged(trial):
            TRIALS[line.name](trial)
        rows.write(json.dumps(trial.row.document()) + "\n")
        if trial.row.verdict == HELD:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
