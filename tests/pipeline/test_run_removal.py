"""A run that a job has a use for stays, whoever started the job: the sentence names it."""

import json
import os
from pathlib import Path

import pytest
from synthetic_run import a_study, write_run

from gprune import jobs
from gprune.jobs import folder as files
from gprune.jobs import job as records
from gprune.jobs import listing, local
from gprune.jobs.slurm.record import Record
from gprune.jobs.state import JobState, write_state
from gprune.pipeline.cache import removal
from gprune.store import Store
from gprune.system.errors import StoreError


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "start_supervisor", lambda _: None)


def a_job(
    cache: Path,
    state: str,
    number: int = 1,
    *,
    arguments: tuple[str, ...] = (),
    slurm: Record | None = None,
    seed: int = 0,
) -> jobs.Job:
    home = files.root(cache)
    home.mkdir(exist_ok=True)
    study = a_study(seed=seed)
    job = records.create(home, study, "mine", arguments, local.worker_command, number, slurm)
    pid = os.getpid()
    at_work = {"pid": pid, "process_started": local.process_start(pid), "started": 1.0}
    values = at_work if state == "running" else {}
    write_state(job.folder, JobState(state=state, **values))
    return job


def refused(cache: Path, run: str) -> str:
    with pytest.raises(StoreError) as caught:
        removal.remove(Store(cache), run)
    assert str(caught.value) == removal.hindrance(Store(cache), run)
    return str(caught.value)


@pytest.mark.parametrize(
    ("state", "does"),
    [
        ("queued", "waits to compute it"),
        ("running", "is at work on it"),
        ("interrupted", "was interrupted and is to be gone on with"),
    ],
)
@pytest.mark.parametrize("slurm", [None, Record(made=1.0, array="41")])
def test_a_job_keeps_the_run_that_it_computes(tmp_path, state, does, slurm):
    run = write_run(tmp_path, stages="drift", state="interrupted")
    job = a_job(tmp_path, state, slurm=slurm)
    assert refused(tmp_path, run) == (
        f"the run {run!r} cannot be deleted, the job {job.id} (mine) {does}: cancel that job first (`gprune "
        f"cancel {job.id}`, or on the page Launch & jobs)"
    )
    assert (tmp_path / "runs" / run).exists()


def test_a_run_is_free_once_its_interrupted_job_is_given_up(tmp_path):
    run = write_run(tmp_path, stages="drift", state="interrupted")
    job = a_job(tmp_path, "interrupted")
    assert "is to be gone on with" in refused(tmp_path, run)
    assert jobs.cancel(tmp_path, job.id).state == "cancelled"
    assert removal.remove(Store(tmp_path), run) > 0


def test_what_went_on_or_came_to_its_end_otherwise_keeps_nothing(tmp_path):
    run = write_run(tmp_path)
    # of a run that is done nobody goes on with an interrupted job, nor where a later one has failed
    a_job(tmp_path, "interrupted", 1)
    assert removal.hindrance(Store(tmp_path), run) == ""
    unfinished = write_run(tmp_path, study=a_study(seed=1), stages="drift", state="failed")
    a_job(tmp_path, "interrupted", 2, seed=1)
    assert removal.hindrance(Store(tmp_path), unfinished)
    a_job(tmp_path, "failed", 3, seed=1)
    assert removal.hindrance(Store(tmp_path), unfinished) == ""


def test_asking_for_a_run_reads_no_study_but_those_of_earlier_versions(tmp_path, monkeypatch):
    run = write_run(tmp_path, stages="drift", state="interrupted")
    job = a_job(tmp_path, "queued")
    with monkeypatch.context() as patch:
        # of 300 jobs their studies took more than a second each time
        patch.setattr(listing, "study_of", lambda *_: pytest.fail("a study was read"))
        assert job.id in removal.hindrance(Store(tmp_path), run)
    record = json.loads((job.folder / files.JOB).read_text())
    del record["run"]
    (job.folder / files.JOB).write_text(json.dumps(record))
    assert job.id in removal.hindrance(Store(tmp_path), run)


def test_an_export_at_work_keeps_the_run_that_it_takes(tmp_path):
    run = write_run(tmp_path)
    a_job(tmp_path, "running", arguments=("cut", run, "mine", "/out"))
    assert "is at work on it" in refused(tmp_path, run)
    other = write_run(tmp_path, study=a_study(seed=5))
    assert removal.remove(Store(tmp_path), other) > 0
