"""When a page is drawn anew while a job computes, what sessions share, and the demo's first start."""

import gc
import sys
from dataclasses import replace

import pytest
from synthetic_run import a_study, read, the_run, write_run

from gprune.app.ui import frame, job_runs, live, work
from gprune.jobs import queue
from gprune.pipeline import runs as run_records
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs
from gprune.store import Store
from gprune.study.demo import demo_study
from gprune.system.errors import JobError


@pytest.fixture(autouse=True)
def nobody():
    """No session follows anything yet."""
    for known in (live._looks, live._followers):
        known.clear()
    yield
    for known in (live._looks, live._followers):
        known.clear()


@pytest.fixture
def two(tmp_path):
    """A run that is shown and one at work, whose first chart is not there yet."""
    shown = write_run(tmp_path)
    other = write_run(tmp_path, study=a_study(seed=1), stages="tokens", state="running")
    return work.look(str(tmp_path)), shown, other


def further(situation, name, **changes):
    """The same, with one run whose record says something else."""
    runs = [replace(run, record=run.record | changes) if run.name == name else run for run in situation.runs]
    return replace(situation, runs=runs)


def drawn_anew(before, now, whose, **given):
    asked = {"ago": 0.0, "sessions": 1, "patience": 0.0} | given
    return live.due(live.Look(now, 0.0), whose, before.marks(whose), **asked)


def test_what_redraws_the_page_of_its_run_and_of_others(two):
    before, shown, other = two
    run = before.run_named(other)
    now = further(before, other, stages=run.stages | {"one more": {"key": "0" * 32}})
    assert not drawn_anew(before, now, other, ago=live.SOONEST - 0.1), "it rests between two stages"
    assert drawn_anew(before, now, other, ago=live.SOONEST)
    assert drawn_anew(before, now, None, ago=live.SOONEST)
    assert not drawn_anew(before, now, shown, ago=3600.0), "its page shows nothing of the other run"
    assert not drawn_anew(before, now, other, ago=live.SOONEST, sessions=20)
    assert drawn_anew(before, now, other, ago=20 * live.REST_EACH, sessions=20)
    now = further(before, other, state="failed")
    assert drawn_anew(before, now, other, sessions=20, patience=19.0)
    assert drawn_anew(before, now, None, sessions=20, patience=19.0)
    assert not drawn_anew(before, now, shown, ago=18.9, sessions=20, patience=19.0)
    assert drawn_anew(before, now, shown, ago=19.0, sessions=20, patience=19.0)
    assert drawn_anew(before, now, shown), "who is alone waits for nobody"
    situation, shown, other = two
    run = situation.run_named(other)
    before = further(situation, other, stages={})
    now = further(situation, other, stages={stages.drift(run.graph).name: {"key": "0" * 32}})
    assert drawn_anew(before, now, other, sessions=20, patience=19.0)
    assert not drawn_anew(before, now, shown, ago=3600.0)


def test_one_look_serves_every_session_and_more_sessions_look_less_often(tmp_path, monkeypatch):
    looks = []
    empty = work.Situation(str(tmp_path), [], [], [], "")
    monkeypatch.setattr(work, "look", lambda root: looks.append(root) or empty)
    moments = iter([0.0, 0.0, 0.5, 0.99, 1.0, 1.0, 1.5])
    monkeypatch.setattr(live.time, "monotonic", lambda: next(moments))
    found = [live.shared_look("here") for _ in range(5)]
    assert len(looks) == 2 and found[0] is found[1] is found[2] and found[3] is found[4] is not found[0]
    assert live.poll(1) == live.POLL_SECONDS and live.poll(20) == 20 * live.POLL_EACH
    assert live.rest([]) == live.SOONEST and live.rest([], 20) == 20 * live.REST_EACH

    now = [0.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    assert live._following("first") == live._following("first") == 1
    assert live._following("second") == 2
    now[0] = live.GONE_SECONDS + 1
    assert live._following("second") == 1, "the first has closed its tab"


def test_what_lasts_is_not_searched_for_garbage_again_and_again(monkeypatch):
    monkeypatch.setattr(frame, "_counted", [0])
    # another test of this process may have settled most of it already
    gc.unfreeze()
    before = gc.get_freeze_count()
    try:
        assert frame.settle_memory() and gc.get_freeze_count() > before + 10_000
        assert not frame.settle_memory(), "nothing was loaded since"
        monkeypatch.setattr(frame, "_counted", [len(sys.modules) - frame.NEW_MODULES])
        assert frame.settle_memory()
    finally:
        gc.unfreeze()


@pytest.fixture
def submitted(monkeypatch):
    studies = []
    monkeypatch.setattr(queue, "submit", lambda cache, study, *_, **__: studies.append(study))
    monkeypatch.setenv(work.AUTOSTART_VARIABLE, "1")
    return studies


def test_the_demo_starts_where_nothing_was_ever_run(tmp_path, submitted):
    assert work.autostart(work.look(str(tmp_path)))
    assert submitted == [demo_study()]


def test_it_does_not_start_when_switched_off(tmp_path, submitted, monkeypatch):
    monkeypatch.setenv(work.AUTOSTART_VARIABLE, "0")
    assert not work.autostart(work.look(str(tmp_path))) and submitted == []


def test_it_does_not_start_beside_a_run_or_after_any_job(tmp_path, submitted):
    write_run(tmp_path)
    assert not work.autostart(work.look(str(tmp_path)))
    situation = work.Situation(str(tmp_path), [], [], [object()], "")
    assert not work.autostart(situation)
    assert not work.autostart(work.Situation(str(tmp_path), [], [], [], "the queue is locked"))
    assert submitted == []


def test_the_signature_changes_with_a_stage_and_with_a_state(tmp_path):
    name = write_run(tmp_path, stages="drift", state="running")
    first, states = work.look(str(tmp_path)).signature, work.look(str(tmp_path)).states
    assert work.look(str(tmp_path)).signature == first
    values = read(tmp_path, name)
    values["stages"]["partition"] = {"key": "0" * 32}
    run_records.save(Store(tmp_path), name, values)
    second = work.look(str(tmp_path)).signature
    # a stage more is drawn when the page has rested; a state, or the first chart, at once
    assert work.look(str(tmp_path)).states == states
    run_records.save(Store(tmp_path), name, values | {"state": "failed"})
    assert len({first, second, work.look(str(tmp_path)).signature}) == 3
    assert work.look(str(tmp_path)).states != states


def test_a_run_that_has_been_quiet_for_long_is_not_live(tmp_path):
    from datetime import UTC, datetime

    name = write_run(tmp_path, stages="drift", state="running")
    assert not job_runs.is_live(the_run(tmp_path))
    values = read(tmp_path, name) | {"updated": datetime.now(UTC).isoformat()}
    run_records.save(Store(tmp_path), name, values)
    assert job_runs.is_live(the_run(tmp_path))
    run_records.save(Store(tmp_path), name, values | {"updated": "yesterday"})
    assert not job_runs.is_live(the_run(tmp_path))


def test_trouble_with_the_queue_is_told_and_runs_stay(tmp_path, monkeypatch):
    name = write_run(tmp_path)

    def refuse(_):
        raise JobError("the queue is locked")

    monkeypatch.setattr(queue, "jobs", refuse)
    situation = work.look(str(tmp_path))
    assert situation.problem == "the queue is locked" and [run.name for run in situation.runs] == [name]


def test_a_job_whose_study_is_gone_makes_no_run_and_labels_tell_the_texts_apart(tmp_path):
    assert job_runs.made_by(str(tmp_path), "20260101-000000-00000000") == ""
    assert a_study().name == "Synthetic"
    studies = [a_study(name="", auxiliary=text, substitute="") for text in ("c4", "ptb", "/data/notes.txt")]
    assert [work.job_label(study) for study in studies] == [
        "demo FLAP 50 %, python-reference | c4",
        "demo FLAP 50 %, python-reference | ptb",
        "demo FLAP 50 %, python-reference | notes.txt",
    ]
    assert work.job_label(a_study()) == "Synthetic, python-reference | science-docs"


def test_a_failed_or_dead_run_is_not_shown_by_itself(tmp_path):
    from datetime import UTC, datetime

    done = write_run(tmp_path)
    failed = write_run(tmp_path, study=a_study(seed=1), stages="drift", state="failed")
    dead = write_run(tmp_path, study=a_study(seed=2), stages="drift", state="running")
    for name in (failed, dead):
        run_records.save(Store(tmp_path), name, read(tmp_path, name) | {"started": "2026-12-01T00:00:00+00:00"})
    runs = all_runs(str(tmp_path))[0]
    assert runs[-1].name == done
    chosen = work.preferred(runs)
    assert chosen is not None and chosen.name == done
    newest = work.preferred(runs[:-1])
    assert newest is runs[0] and work.preferred([]) is None
    run_records.save(Store(tmp_path), dead, read(tmp_path, dead) | {"updated": datetime.now(UTC).isoformat()})
    runs = all_runs(str(tmp_path))[0]
    chosen = work.preferred(runs)
    assert chosen is not None and chosen.name == done, "a running job does not take the view from a result"
    chosen = work.preferred([run for run in runs if run.name != done])
    assert chosen is not None and chosen.name == dead
