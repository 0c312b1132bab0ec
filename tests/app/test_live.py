"""When a page is drawn anew while a job computes, what sessions share, and the demo's first start."""

import gc
import sys
from dataclasses import replace

import pytest
from synthetic_run import a_study, change_record, the_run, write_run

from gprune.app.ui import frame, live, run_status, work
from gprune.jobs import processes, queue
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs
from gprune.study.demo import demo_study
from gprune.system.errors import JobError


def further(situation, name, **changes):
    """The same, with one run whose record says something else."""
    runs = [replace(run, record=run.record | changes) if run.name == name else run for run in situation.runs]
    return replace(situation, runs=runs)


def test_a_stage_counts_for_its_own_run_and_a_state_or_first_chart_for_every_page(tmp_path):
    visible = write_run(tmp_path)
    # one that is running, whose first chart is not there yet
    other = write_run(tmp_path, study=a_study(seed=1), stages="tokens", state="running")
    before = work.read_situation(str(tmp_path))
    run = before.run_named(other)
    current = further(before, other, stages=run.stages | {"one more": {"key": "0" * 32}})
    assert current.states == before.states and current.stage_counts(visible) == before.stage_counts(visible)
    assert current.stage_counts(other) != before.stage_counts(other) and current.stage_counts(
        None
    ) != before.stage_counts(None)
    assert further(before, other, state="failed").states != before.states
    empty = further(before, other, stages={})
    first = further(before, other, stages={stages.drift(run.graph).name: {"key": "0" * 32}})
    assert first.states != empty.states


def test_one_look_serves_every_session_for_a_second(tmp_path, monkeypatch):
    looks = []
    empty = work.Situation(str(tmp_path), [], [], [], "")
    monkeypatch.setattr(work, "read_situation", lambda root: looks.append(root) or replace(empty))
    moments = iter([0.0, 0.0, 0.5, 0.99, 1.0, 1.0, 1.5])
    monkeypatch.setattr(live.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(live, "_snapshots", {})
    observed = [live.shared_situation("here") for _ in range(5)]
    assert (
        len(looks) == 2 and observed[0] is observed[1] is observed[2] and observed[3] is observed[4] is not observed[0]
    )


def test_what_lasts_is_not_searched_for_garbage_again_and_again(monkeypatch):
    monkeypatch.setattr(frame, "_modules_at_freeze", [0])
    # another test of this process may have settled most of it already
    gc.unfreeze()
    before = gc.get_freeze_count()
    try:
        assert frame.freeze_loaded_objects() and gc.get_freeze_count() > before + 10_000
        assert not frame.freeze_loaded_objects(), "nothing was loaded since"
        monkeypatch.setattr(frame, "_modules_at_freeze", [len(sys.modules) - frame.NEW_MODULES])
        assert frame.freeze_loaded_objects()
    finally:
        gc.unfreeze()


@pytest.fixture
def submitted(monkeypatch):
    studies = []
    monkeypatch.setattr(queue, "submit", lambda cache, study, *_, **__: studies.append(study))
    monkeypatch.setenv(work.AUTOSTART_VARIABLE, "1")
    return studies


def test_the_demo_starts_where_nothing_was_ever_run(tmp_path, submitted):
    assert work.autostart(work.read_situation(str(tmp_path)))
    assert submitted == [demo_study()]


def test_it_does_not_start_beside_a_run_or_after_any_job(tmp_path, submitted):
    write_run(tmp_path)
    assert not work.autostart(work.read_situation(str(tmp_path)))
    situation = work.Situation(str(tmp_path), [], [], [object()], "")
    assert not work.autostart(situation)
    assert not work.autostart(work.Situation(str(tmp_path), [], [], [], "the queue is locked"))
    assert submitted == []


def test_a_run_whose_process_is_gone_is_not_live(tmp_path):
    name = write_run(tmp_path, stages="drift", state="running")
    assert not run_status.is_live(the_run(tmp_path))
    change_record(tmp_path, name, owner=processes.identify_process())
    assert run_status.is_live(the_run(tmp_path))
    change_record(tmp_path, name, owner=processes.identify_process() | {"started": 1.0})
    assert not run_status.is_live(the_run(tmp_path))


def test_trouble_with_the_queue_is_told_and_runs_stay(tmp_path, monkeypatch):
    name = write_run(tmp_path)

    def refuse(_):
        raise JobError("the queue is locked")

    monkeypatch.setattr(queue, "jobs", refuse)
    situation = work.read_situation(str(tmp_path))
    assert situation.problem == "the queue is locked" and [run.name for run in situation.runs] == [name]


def test_a_job_whose_study_is_gone_makes_no_run_and_labels_tell_the_texts_apart(tmp_path):
    assert run_status.run_of_job(str(tmp_path), "20260101-000000-00000000") == ""
    assert a_study().name == "Synthetic"
    studies = [a_study(name="", auxiliary=text, substitute="") for text in ("c4", "ptb", "/data/notes.txt")]
    assert [work.job_label(study) for study in studies] == [
        "demo FLAP 50%, python-reference | c4",
        "demo FLAP 50%, python-reference | ptb",
        "demo FLAP 50%, python-reference | notes.txt",
    ]
    assert work.job_label(a_study()) == "Synthetic, python-reference | science-docs"


def test_a_failed_or_dead_run_is_not_shown_by_itself(tmp_path):
    done = write_run(tmp_path)
    failed = write_run(tmp_path, study=a_study(seed=1), stages="drift", state="failed")
    dead = write_run(tmp_path, study=a_study(seed=2), stages="drift", state="running")
    for name in (failed, dead):
        change_record(tmp_path, name, started="2026-12-01T00:00:00+00:00")
    runs = all_runs(str(tmp_path))[0]
    assert runs[-1].name == done
    chosen = work.preferred_run(runs)
    assert chosen is not None and chosen.name == done
    newest = work.preferred_run(runs[:-1])
    assert newest is runs[0] and work.preferred_run([]) is None
    change_record(tmp_path, dead, owner=processes.identify_process())
    runs = all_runs(str(tmp_path))[0]
    chosen = work.preferred_run(runs)
    assert chosen is not None and chosen.name == done, "a running job does not take the view from a result"
    chosen = work.preferred_run([run for run in runs if run.name != done])
    assert chosen is not None and chosen.name == dead
