"""`penstock jobs`, `show`, `move`, `replan`, `scale`, `workers`, `drain`, `stop`: look at a job elsewhere, and tell it.

A job is one of this user's, in whatever process it runs: `penstock run`, a notebook, a script. It is named by its id,
the beginning of that, or its topology's name; where one job runs, `show` and `stop` need no name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from penstock.cli.options import Format, FormatOption
from penstock.cli.show import console, counted, number, print_json, rows_table
from penstock.errors import InvalidInput, JobFailed, PenstockError

if TYPE_CHECKING:
    from penstock.deploy.desk.cards import Card

TASKS_SHOWN = 12
MOVES_SHOWN = 20
ASKED_AT_ONCE = 16
GENTLE_SECONDS = 2.0  # that a list of jobs waits for one of them
Given = ParamSpec("Given")
Found = TypeVar("Found")
JobName = Annotated[str, typer.Argument(metavar="JOB", help="Its id, the beginning of that, or its topology's name.")]
MaybeJobName = Annotated[
    str | None, typer.Argument(metavar="JOB", help="Its id or its topology's name; not needed where one runs.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs for jobs that run."""
    for verb in (jobs, show, move, replan, scale, workers, drain, stop):
        app.command()(_understood(verb))


def _understood(verb: Callable[Given, Found]) -> Callable[Given, Found]:
    """The verb; where a job's answer is not as this version's are, its user is told so in a line."""

    @wraps(verb)
    def told(*given: Given.args, **named: Given.kwargs) -> Found:
        try:
            return verb(*given, **named)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            msg = f"the job's answer is not understood ({error!r:.200}); does it run another version of Penstock?"
            raise JobFailed(msg) from error

    return told


def jobs(output: FormatOption = Format.table) -> None:
    """List your jobs that run on this machine."""
    from penstock.deploy.desk.cards import cards

    known = cards()
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        found = list(zip(known, pool.map(_asked_gently, known), strict=True))
    if output is Format.json:
        print_json({"penstock": 1, "jobs": [{"id": card.id, "name": card.name, **seen} for card, seen in found]})
        return
    if not found:
        console().print("no job of yours runs here")
        return
    rows = [
        (card.id, card.name, str(seen.get("status", "does not answer")), _age(card), str(seen.get("rows_read", "")),
         str(seen.get("epoch", "")), str(card.pid))
        for card, seen in found
    ]  # fmt: skip
    console().print(rows_table(("id", "topology", "status", "runs for", "rows read", "epoch", "process"), rows))


def show(job: MaybeJobName = None, output: FormatOption = Format.table) -> None:
    """Show a running job: where its tasks are, how far it has come, and its notes."""
    seen = _ask(job, "show")
    if output is Format.json:
        print_json({"penstock": 1, **seen})
        return
    rows = [(each["node"], str(each["worker"]), str(each["pid"]), _tasks(each["tasks"])) for each in seen["workers"]]
    console().print(rows_table(("node", "worker", "process", "tasks"), rows))
    p50, p99 = (seen["latency_ms"][part] for part in ("p50", "p99"))
    console().print(
        f"{seen['name']} ({seen['id']}): {seen['status']} for {seen['seconds']:.0f} s, plan of {seen['scheduler']!r}, "
        f"{counted(seen['rows_read'], 'row')} read, latency p50 {number(p50)} ms, p99 {number(p99)} ms, epoch "
        f"{seen['epoch']}, attempt {seen['attempt']}, recoveries {seen['recoveries']}"
    )
    for note in seen["notes"]:
        console().print(f"note: {note}")


def move(
    job: JobName,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK... WORKER",
            help="Tasks (count/0) or whole operators (count), and the worker's number, as `penstock show` has it.",
        ),
    ],
    to: Annotated[
        int | None, typer.Option("--to", metavar="WORKER", help="The worker's number, in place of the last argument.")
    ] = None,
    output: FormatOption = Format.table,
) -> None:
    """Move tasks of a running job to another worker. The job needs --checkpoint."""
    tasks, worker = _tasks_and_worker(words, to)
    found = _ask(job, "move", tasks=tasks, worker=worker)
    _told(found, output, str(found["note"]))


def _tasks_and_worker(words: list[str], to: int | None) -> tuple[list[str], int]:
    """What is to move, and where to: the worker stands last, as in `move JOB TASK WORKER`, or behind --to."""
    if to is not None:
        return list(words), to
    *tasks, last = words
    if not tasks or not (last.isascii() and last.isdigit()):
        lacks = "no task is named" if not tasks else f"worker is {last!r}"
        msg = (
            f"{lacks}; name the job, tasks and then the number of a worker, as in `penstock move JOB count/0 1` "
            "(`penstock jobs` and `penstock show JOB` have them)"
        )
        raise InvalidInput(msg)
    return tasks, int(last)


def replan(
    job: JobName,
    scheduler: Annotated[str | None, typer.Option(help="Another scheduler than the job's own.")] = None,
    last: Annotated[str | None, typer.Option(metavar="WINDOW", help="Plan from this time alone, e.g. '60 s'.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Go over to the new plan.")] = False,
    output: FormatOption = Format.table,
) -> None:
    """Make a new plan for a running job from what it has measured, and follow it with --apply."""
    found = _ask(job, "replan", scheduler=scheduler, window=last, apply=apply)
    if output is Format.json:
        return print_json({"penstock": 1, **found})
    between, moves = found["between_nodes"], found["moves"]
    rows = [(task, slot["node"], str(slot["worker"])) for task, slot in list(moves.items())[:MOVES_SHOWN]]
    if rows:
        console().print(rows_table(("task", "to node", "worker there"), rows))
    more = f" ({len(moves) - MOVES_SHOWN} are not shown)" if len(moves) > MOVES_SHOWN else ""
    console().print(
        f"{found['scheduler']}: {number(between['now'])} B/s between nodes now, {number(between['then'])} then; "
        f"{counted(len(moves), 'task')} would move{more}"
    )
    console().print(found["note"] if found["applied"] else "nothing was moved" + ("" if apply else "; --apply does it"))
    return None


def scale(
    job: JobName,
    name: Annotated[str, typer.Argument(metavar="OPERATOR", help="An operator, or a parallel region.")],
    count: Annotated[int, typer.Argument(metavar="N", help="How many tasks it is to have; of a region, replicas.")],
    output: FormatOption = Format.table,
) -> None:
    """Give an operator of a running job more or fewer tasks, or a region more or fewer replicas.

    Tasks of operators need --checkpoint; replicas are 1 to those that parallel(n, at_most=m) was given.
    """
    found = _ask(job, "scale", name=name, count=count)
    region = f"region {name!r} goes on with {counted(count, 'replica')}"
    _told(found, output, region if found["is_region"] else str(found["note"]))


def workers(
    job: JobName,
    count: Annotated[int, typer.Argument(metavar="N", help="How many workers it is to have.")],
    take_last_slot: Annotated[bool, typer.Option("--take-last-slot", help="Leave no slot for other queries.")] = False,
    output: FormatOption = Format.table,
) -> None:
    """Give a running job more or fewer workers. The job needs --checkpoint."""
    found = _ask(job, "workers", workers=count, take_last_slot=take_last_slot)
    _told(found, output, str(found["note"]))


def drain(
    job: JobName,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node, as `penstock show` names it.")],
    output: FormatOption = Format.table,
) -> None:
    """Take a running job's workers off a node that is to leave. The job needs --checkpoint."""
    found = _ask(job, "drain", node=node)
    _told(found, output, str(found["note"]))


def stop(
    job: MaybeJobName = None,
    now: Annotated[bool, typer.Option("--now", help="End at once; with checkpoints it can go on later.")] = False,
    output: FormatOption = Format.table,
) -> None:
    """Stop a running job: its sources end and everything flows out."""
    found = _ask(job, "stop", now=now)
    _told(found, output, "the job ends at once" if now else "its sources end; the job ends when all has flowed out")


# -- asking ------------------------------------------------------------------------------------------------------------


def _ask(job: str | None, call: str, **words: object) -> dict[str, Any]:
    from penstock.deploy.desk.caller import ANSWER_SECONDS, ask
    from penstock.deploy.desk.cards import find

    return ask(find(job), call, patience_s=ANSWER_SECONDS, **words)


def _asked_gently(card: Card) -> dict[str, Any]:
    """What a job says of itself; nothing where it does not answer."""
    from penstock.deploy.desk.caller import ask

    try:
        seen = ask(card, "show", patience_s=GENTLE_SECONDS)
    except PenstockError:
        return {}
    names = ("status", "rows_read", "epoch", "attempt", "recoveries", "seconds")
    return {name: seen[name] for name in names if name in seen}


def _told(found: dict[str, Any], output: Format, words: str) -> None:
    if output is Format.json:
        print_json({"penstock": 1, **found})
    else:
        console().print(words)


def _tasks(tasks: list[str]) -> str:
    shown = " ".join(tasks[:TASKS_SHOWN])
    return f"{shown} and {len(tasks) - TASKS_SHOWN} more" if len(tasks) > TASKS_SHOWN else shown


def _age(card: Card) -> str:
    return f"{max(0.0, time.time() - card.began_s):.0f} s"
