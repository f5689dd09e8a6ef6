"""Which answers to ask a running Storm or Flink for; the documents are the same as in a folder of saved answers."""

from __future__ import annotations

import time
from typing import Protocol
from urllib.parse import SplitResult, quote

from penstock.errors import InvalidInput
from penstock.imports import flink, storm

ATTEMPTS_MAX = 6
PAUSE_SECONDS = 2.0  # Flink gathers metrics in the background when it is first asked for them
_STORM = "/api/v1/topology/"


class Asks(Protocol):
    """One server."""

    def get(self, path: str) -> object:
        """The JSON answer to GET of a path."""


def collect_storm(address: SplitResult, web: Asks) -> dict[str, object]:
    """The answers about the topology that the address names, for the window that it names (`?window=600`)."""
    base, found, rest = address.path.rstrip("/").partition(_STORM)
    if not found or not rest or "/" in rest:
        msg = f"the address must name a topology: http://HOST:PORT{_STORM}ID, or that with ?window=600"
        raise InvalidInput(msg)
    query = f"?{address.query}" if address.query else ""
    path = f"{base}{_STORM}{rest}"
    topology = web.get(path + query)
    found_names = storm.component_names(topology)
    paths = [f"{path}/component/{quote(name, safe='')}" for name in found_names] + [f"{path}/visualization"]
    return {path: topology, **{one: web.get(one + query) for one in paths}}


def collect_flink(address: SplitResult, web: Asks, pause: float = PAUSE_SECONDS) -> dict[str, object]:
    """The answers about the job that the address names (`/jobs/ID`), or about the only one that runs."""
    base, found, rest = address.path.rstrip("/").partition("/jobs/")
    job = rest if found and rest else quote(flink.running_job(web.get(f"{base}/jobs/overview")), safe="")
    path = f"{base}/jobs/{job}"
    answers: dict[str, object] = {}
    for attempt in range(ATTEMPTS_MAX):
        answers = _about_job(path, web)
        if attempt == ATTEMPTS_MAX - 1 or all(answers[name] for name in answers if name.endswith("/metrics")):
            break
        time.sleep(pause)
    return answers


def _about_job(path: str, web: Asks) -> dict[str, object]:
    answers = {path: (job := web.get(path))}
    for vertex, parallelism in flink.vertices_of(job):
        one = f"{path}/vertices/{quote(vertex, safe='')}"
        answers[one] = web.get(one)
        answers[f"{one}/metrics"] = [
            entry
            for names in flink.metric_names(parallelism)
            for entry in _metrics(web.get(f"{one}/metrics?get={names}"))
        ]
    return answers


def _metrics(answer: object) -> list[object]:
    return answer if isinstance(answer, list) else [answer]
