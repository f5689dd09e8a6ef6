"""What people see at a prompt: short texts, and names that are for them."""

from __future__ import annotations

import dataclasses

import penstock as ps
from penstock.cli.show import plan_summary
from penstock.deploy.driver.binding import Replan
from penstock.deploy.driver.job_view import JobView

GRAPH = ps.OperatorGraph("words", (ps.Operator("lines", 20), ps.Operator("count", 20)), (ps.Stream("lines", "count"),))
PLAN = ps.place(GRAPH, ps.parse_cluster("4x20"), "even")
PROFILE = ps.Profile({"lines/0": ps.TaskProfile(0.5)}, (ps.EdgeProfile("lines/0", "count/0", 1000.0),))
VIEW = JobView("words", "a1b2", "running", 2, 45, 1_234_567, bounded=True, keeps_rows=True)


def test_plans_replans_and_profiles_are_one_short_line() -> None:
    workers = len(set(PLAN.assignment.values()))
    assert repr(PLAN) == (
        f"Plan(even: 40 tasks on {workers} workers of 4 nodes, cost {PLAN.cost:g} between nodes; "
        ".assignment says where each task runs)"
    )
    assert repr(dataclasses.replace(PLAN, proved_optimal=True)).count("proved optimal") == 1
    cheaper = dataclasses.replace(PLAN, cost=PLAN.cost - 5)
    assert repr(Replan(PLAN, cheaper)).startswith(f"Replan(saves 5 of {PLAN.cost:g} B/s between nodes, 0 tasks would")
    assert repr(PROFILE) == "Profile(1 tasks, load 0.5; 1 pairs, 1000 B/s)"
    assert all(len(repr(shown)) < 300 for shown in (PLAN, Replan(PLAN, cheaper), PROFILE))


def test_a_job_says_what_it_is_and_what_to_do_next() -> None:
    assert VIEW.text() == (
        "Job('words', id='a1b2', running: 2 workers, 45 tasks, 1,234,567 rows read; job.result waits for its end, "
        "job.cancel() ends it)"
    )
    for changes, said in (
        ({"bounded": False}, "job.stop() drains it"),
        ({"status": "stopping"}, "job.cancel() ends it at once"),
        ({"status": "finished"}, "job.result has its rows"),
        ({"status": "finished", "keeps_rows": False}, "its sinks have its rows"),
        ({"status": "failed", "error": "operator 'a' failed\nmore"}, "operator 'a' failed)"),
    ):
        assert said in dataclasses.replace(VIEW, **changes).text()  # type: ignore[arg-type]


def test_a_job_in_a_notebook_is_a_table_of_text() -> None:
    shown = dataclasses.replace(VIEW, name="<b>words", error="ValueError: <script>").html()
    assert "<script>" not in shown
    assert "<caption>Job &lt;b&gt;words</caption>" in shown
    assert "1,234,567 rows read" in shown


def test_sources_and_sinks_are_all_that_completion_offers() -> None:
    assert dir(ps.io) == sorted(ps.io.__all__)
    assert not {"pa", "partial", "math", "dataclass"} & set(dir(ps.io))
    assert all(getattr(ps.io, name).__doc__ for name in ps.io.__all__)


def test_a_plan_s_summary_says_how_near_its_bound_the_cost_is() -> None:
    for bound, words in (
        (PLAN.cost, "cost equals its bound"),
        (PLAN.cost / 1.0002, "less than 0.1% above the optimum"),
        (PLAN.cost / 1.25, "at most 25.0% above the optimum"),
        (0.0, "no bound known"),
    ):
        assert words in plan_summary(dataclasses.replace(PLAN, lower_bound=bound))
    proved = plan_summary(dataclasses.replace(PLAN, lower_bound=PLAN.cost, proved_optimal=True))
    assert "proved optimal" in proved
    assert "bound" not in proved
