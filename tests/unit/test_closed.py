"""What closes a session, without one: settings, what may stand on a command line, what a closure carries."""

from __future__ import annotations

import dataclasses
import secrets

import pytest
from pyspark.cloudpickle import dumps

from penstock.deploy.driver.stage import Action
from penstock.deploy.line.messages import TICKET_PROPERTY
from penstock.deploy.session import closed
from penstock.deploy.session.closed import (
    LOCAL_ADDRESS,
    closing_settings,
    for_the_command_line,
    keep_to_loopback,
    open_notes,
    setting_notes,
)
from penstock.deploy.worker.carried import Carried
from penstock.deploy.worker.main import WorkerCall
from penstock.run.dataflow import Dataflow


def test_sessions_have_secrets_of_their_own_and_bind_to_loopback() -> None:
    first, second = closing_settings({}), closing_settings({})
    assert first["spark.driver.bindAddress"] == first["spark.driver.host"] == "127.0.0.1"
    assert first["spark.authenticate"] == "true"
    different = {name for name in first if first[name] != second[name]}
    assert different == {"spark.authenticate.secret", "spark.org.apache.spark.ui.JWSFilter.param.secretKey"}
    assert all(len(first[name]) >= 43 for name in different)  # 32 bytes in base 64
    assert not different & set(for_the_command_line(first))


def test_who_wants_sparks_page_sees_it() -> None:
    assert "spark.ui.filters" in closing_settings({})
    assert "spark.ui.filters" not in closing_settings({"spark.ui.enabled": "true"})


def test_secrets_of_others_do_not_stand_on_a_command_line_either() -> None:
    given = {"spark.hadoop.fs.s3a.secret.key": "x", "spark.my.password": "x", "spark.executor.cores": "2"}
    assert for_the_command_line(given) == {"spark.executor.cores": "2"}
    assert for_the_command_line({TICKET_PROPERTY: "x"}) == {}  # and so Spark blacks it out in its event log


def test_a_session_elsewhere_after_one_here_is_reached_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCAL_ADDRESS, "10.0.0.1")  # somebody's own wish
    assert closed.reach_out() == {}
    keep_to_loopback()
    monkeypatch.setattr("penstock.deploy.session.closed.socket.gethostbyname", lambda name: "192.0.2.7")
    assert closed.reach_out() == {"spark.driver.host": "192.0.2.7"}
    assert closed.reach_out() == {}


def test_an_open_session_is_told_in_one_sentence() -> None:
    assert open_notes(authenticated=True) == ()
    (note,) = open_notes(authenticated=False)
    assert "spark.authenticate off" in note
    assert note.count(". ") == 0


def test_a_closure_carries_no_key() -> None:
    ticket = secrets.token_bytes(32)
    call = WorkerCall("job", Carried(Dataflow("empty", ())), 1, "tcp://127.0.0.1:1", loopback=True)
    action = Action(None, call, None, ticket, on_change=lambda: None)  # type: ignore[arg-type]
    for closure in (dumps(action._call.on_partition), dumps(action._call.on_batches)):
        assert ticket not in closure
        assert ticket.hex().encode() not in closure
    assert not [field for field in dataclasses.fields(WorkerCall) if "bytes" in str(field.type)]


def test_settings_that_show_more_than_they_need_are_told() -> None:
    assert setting_notes("127.0.0.1", None, "penstock.secret") == ()
    assert setting_notes("127.0.0.1", "(?i)secret|password", "penstock.secret") == ()
    assert setting_notes("127.0.0.1", "(?<a[", "penstock.secret") == ()  # Java may know better
    (everywhere,) = setting_notes("0.0.0.0", None, "penstock.secret")  # noqa: S104
    assert "spark.driver.bindAddress is 0.0.0.0, so the job's control line listens on all addresses" in everywhere
    (shown,) = setting_notes("10.0.0.1", "password", "penstock.secret")
    assert "spark.redaction.regex is 'password', which does not match 'penstock.secret'" in shown
