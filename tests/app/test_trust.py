"""Code that comes with a model runs only where the server was started for it, whatever a page asks for."""

import ast
from dataclasses import replace

import pytest
from app_driver import open_page, opened, words
from synthetic_run import a_study, names, write_run

from gprune.app import preview, server
from gprune.app.preview import Question, Source
from gprune.app.server import server_options
from gprune.app.ui import work
from gprune.jobs import queue
from gprune.pipeline.stages import Graph, Inputs
from gprune.study import Study
from gprune.system.errors import SettingsError

TRUSTING = a_study(trust_remote_code=True)
Started = list[tuple[Study, tuple[str, ...]]]


@pytest.fixture
def trusting(monkeypatch):
    """A server that was started with --trust-remote-code."""
    monkeypatch.setattr(server_options, "_noted", [])
    server.open_with(server.ServerOptions(trust_remote_code=True))
    yield


def refused():
    return pytest.raises(SettingsError, match="trust_remote_code is on, but .* --trust-remote-code, or run")


def test_terms_are_those_of_the_start_and_trust_nothing_before(monkeypatch):
    monkeypatch.setattr(server_options, "_noted", [])
    assert server.current_terms() is None
    server.require_trust(False)
    for given in (None, server.ServerOptions()):
        if given is not None:
            server.open_with(given)
        with refused():
            server.require_trust(True)
    server.open_with(server.ServerOptions(trust_remote_code=True))
    server.require_trust(True)


def test_no_job_of_the_app_runs_code_of_a_model(cache, started):
    with refused():
        work.submit(str(cache), TRUSTING)
    with refused():
        work.submit(str(cache), TRUSTING, "an export", ("pad", "a", "b"))
    assert started == []
    work.submit(str(cache), replace(TRUSTING, trust_remote_code=False))
    assert len(started) == 1


def test_a_job_of_the_command_line_is_not_started_again_by_the_app(cache, monkeypatch):
    monkeypatch.setattr(queue, "study_of", lambda *_: TRUSTING)
    monkeypatch.setattr(queue, "resume", lambda *_: pytest.fail("it was started"))
    with refused():
        work.resume(str(cache), "20260101-000000-00000000")


def test_a_run_that_has_it_is_not_continued_by_its_button(cache, started):
    write_run(cache, study=TRUSTING, state="cancelled", stages=names()[:9])
    app = opened()
    app.button(key="frame_continue").click().run()
    assert started == []
    assert ["--trust-remote-code, or run" in one.value.replace("\\", "") for one in app.error] == [True]


def test_its_button_goes_on_where_the_server_may(cache, started, trusting):
    write_run(cache, study=TRUSTING, state="cancelled", stages=names()[:9])
    opened().button(key="frame_continue").click().run()
    assert [study.trust_remote_code for study, _ in started] == [True]


def test_the_preview_loads_no_such_model():
    source = Source("/nowhere", Graph(TRUSTING, Inputs.unknown(TRUSTING)))
    pool = preview.Client(start=lambda *_: pytest.fail("a worker was started"))
    with refused():
        pool.ask(source, Question(TRUSTING.evaluation.texts[0]), "me")
    with refused():
        pool.ask_many(source, [Question(TRUSTING.evaluation.texts[0])], "me")


def test_the_form_offers_it_only_where_it_is_allowed(cache, started):
    app = open_page("jobs")
    assert app.toggle(key="launch_trust").disabled
    assert "This server runs no code that comes with a model;" in words(app)
    # a value that was left in the session, or sent by hand, counts for nothing
    app.session_state["launch_trust"] = True
    app.run()
    app.button(key="launch_start").click().run()
    assert [study.trust_remote_code for study, _ in started] == [False]


def test_the_form_hands_it_on_where_the_server_may(cache, started, trusting):
    app = open_page("jobs")
    app.toggle(key="launch_trust").set_value(True).run()
    assert "This server runs no code that comes with a model;" not in words(app)
    app.button(key="launch_start").click().run()
    assert [study.trust_remote_code for study, _ in started] == [True]


def test_every_page_starts_its_jobs_by_the_one_function_that_asks(project):
    found = set()
    for path in (project / "gprune" / "app").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Attribute) and call.attr in ("submit", "resume"):
                if getattr(call.value, "id", "") == "queue":
                    found.add(path.name)
    assert found == {"work.py"}
