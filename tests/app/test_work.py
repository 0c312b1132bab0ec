"""The demo's first start, and when a page must be drawn anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import a_study, read, write_run

from gprune.app.ui import job_runs, work
from gprune.jobs import queue
from gprune.pipeline import runs as run_records
from gprune.pipeline.runs.opened import all_runs
from gprune.store import Store
from gprune.study import Study
from gprune.study.demo import demo_study
from gprune.system.errors import JobError


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    studies: list[Study] = []
    monkeypatch.setattr(queue, "submit", lambda cache, study, *_, **__: studies.append(study))
    monkeypatch.setenv(work.AUTOSTART_VARIABLE, "1")
    return studies


def test_the_demo_starts_where_nothing_was_ever_run(tmp_path: Path, submitted: list[Study]) -> None:
    assert work.autostart(work.look(str(tmp_path)))
    assert submitted == [demo_study()]


def test_it_does_not_start_when_switched_off(
    tmp_path: Path, submitted: list[Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(work.AUTOSTART_VARIABLE, "0")
    assert not work.autostart(work.look(str(tmp_path))) and submitted == []


def test_it_does_not_start_beside_a_run_or_after_any_job(tmp_path: Path, submitted: list[Study]) -> None:
    write_run(tmp_path)
    assert not work.autostart(work.look(str(tmp_path)))
    situation = work.Situation(str(tmp_path), [], [], [object()], "")  # type: ignore[list-item]
    assert not work.autostart(situation)
    assert not work.autostart(work.Situation(str(tmp_path), [], [], [], "the queue is locked"))
    assert submitted == []


def test_the_signature_changes_with_a_stage_and_with_a_state(tmp_path: Path) -> None:
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


def test_a_run_that_has_been_quiet_for_long_is_not_live(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    name = write_run(tmp_path, stages="drift", state="running")
    assert not job_runs.is_live(all_runs(str(tmp_path))[0][0])
    values = read(tmp_path, name) | {"updated": datetime.now(UTC).isoformat()}
    run_records.save(Store(tmp_path), name, values)
    assert job_runs.is_live(all_runs(str(tmp_path))[0][0])
    run_records.save(Store(tmp_path), name, values | {"updated": "yesterday"})
    assert not job_runs.is_live(all_runs(str(tmp_path))[0][0])


def test_trouble_with_the_queue_is_told_and_runs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write_run(tmp_path)

    def refuse(_: Path) -> None:
        raise JobError("the queue is locked")

    monkeypatch.setattr(queue, "jobs", refuse)
    situation = work.look(str(tmp_path))
    assert situation.problem == "the queue is locked" and [run.name for run in situation.runs] == [name]


def test_a_job_whose_study_is_gone_makes_no_run(tmp_path: Path) -> None:
    assert job_runs.made_by(str(tmp_path), "20260101-000000-00000000") == ""
    assert a_study().name == "Synthetic"


def test_a_failed_or_dead_run_is_not_shown_by_itself(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    done = write_run(tmp_path)
    failed = write_run(tmp_path, study=a_study(seed=1), stages="drift", state="failed")
    dead = write_run(tmp_path, study=a_study(seed=2), stages="drift", state="running")
    for name in (failed, dead):
        run_records.save(
            Store(tmp_path), name, read(tmp_path, name) | {"started": "2026-12-01T00:00:00+00:00"}
        )
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


def test_job_labels_tell_the_texts_apart() -> None:
    studies = [a_study(name="", auxiliary=text, substitute="") for text in ("c4", "ptb", "/data/notes.txt")]
    assert [work.job_label(study) for study in studies] == [
        "demo FLAP 50 %, python-reference | c4",
        "demo FLAP 50 %, python-reference | ptb",
        "demo FLAP 50 %, python-reference | notes.txt",
    ]
    assert work.job_label(a_study()) == "Synthetic, python-reference | science-docs"
