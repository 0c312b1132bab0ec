"""Jobs in a real Slurm of two slots on this machine: arrays, a job put back, and cancellation."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import tiny_study
from run_starters import contents
from sweep.computed import begun
from waiting import limit, wait_for

from gprune import jobs, pipeline
from gprune.experiments.sweep import running
from gprune.experiments.sweep.plan import Sweep
from gprune.jobs.slurm import watching
from gprune.jobs.slurm.record import read_record
from gprune.jobs.slurm.settings import SlurmSettings
from gprune.jobs.slurm.submission import StudyJob
from gprune.jobs.state import read_state
from gprune.store import Store
from gprune.study import from_dict

from . import slurm_machine

PROJECT = Path(__file__).parents[2]
ENGINES = ("slurm", "local")
REASON = slurm_machine.why_not()
pytestmark = [
    pytest.mark.long,
    pytest.mark.process,
    # one Slurm for all of them
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(bool(REASON), reason=REASON or "Slurm is here"),
]


@pytest.fixture(scope="module")
def slurm():
    """A Slurm of our own, whose clients every test finds."""
    with slurm_machine.running() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(watching, "SETTLE_SECONDS", 1.0)
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    return from_dict(tiny_study.made(folder))


def of_seeds(study, *seeds):
    return [replace(study, seed=seed) for seed in seeds]


def submit(cache, studies, **settings):
    chosen = SlurmSettings(partition="main", **settings)  # type: ignore[arg-type]
    return jobs.submit_slurm(cache, [StudyJob(one) for one in studies], chosen)


def ended(cache, found):
    time.sleep(0.3)
    jobs.ask_slurm(cache)
    return not any(jobs.get(cache, job.id).active for job in found)


def at_work(cache):
    """Processes whose command line names the cache, this one aside."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words, gone = " ".join(process.info["cmdline"] or []), process.info["status"] == psutil.STATUS_ZOMBIE
        if str(cache) in words and not gone and process.pid != os.getpid():
            found.append(process.pid)
    return found


def looked(cache, job):
    time.sleep(0.3)
    jobs.ask_slurm(cache)
    return jobs.get(cache, job.id)


def reproduce(study, cache, *more):
    """The command that makes the main table of a small model, at one retention and of three methods."""
    words = ["reproduce", "main", "--model", study.model, "--scale", "demo", "--primary", study.primary]
    words += ["--auxiliary", study.auxiliary, "--substitute", study.evaluation.texts[0], "--tasks", "none"]
    words += ["--evaluate", study.evaluation.texts[0], "--samples", "16", "--windows", "4", "--seeds", "0"]
    words += ["--epochs", str(study.sparsity.epochs), "--retentions", "0.5"]
    words += ["--methods", "gprune", "flap", "wanda_sp"]
    for setting in ("calibration.length=16", "calibration.batch=4", "modularization.candidates=[2, 3]",
                    "modularization.steps=5", 'evaluation.preset="16"', "calibration.shards=4"):  # fmt: skip
        words += ["--set", setting]
    return [sys.executable, "-m", "gprune", *words, "--cache", str(cache), "--out", str(cache / "out"), *more]


def taken_back(cache, job):
    """Whether Slurm has the job waiting again, after what was left of it has ended."""
    time.sleep(0.3)
    jobs.ask_slurm(cache)
    return read_record(job.folder).state == "PENDING"


def test_an_array_in_two_slots_makes_the_arrays_of_a_local_run(slurm, study, tmp_path):
    studies = of_seeds(study, 0, 1, 2)
    for one in studies:
        pipeline.run(one, Store(tmp_path / "local"), lambda *_: None)
    # a folder whose name a shell would read otherwise
    cache = tmp_path / "it's $HOME; 50%"
    found = submit(cache, studies)
    assert [job.engine for job in found] == ["slurm"] * 3
    assert len({read_record(job.folder).array for job in found}) == 1
    assert submit(cache, studies[:1])[0].id == found[0].id
    wait_for(lambda: ended(cache, found), 120)
    states = [(read_state(job.folder).state, read_state(job.folder).error) for job in found]
    assert states == [("done", "")] * 3
    assert contents(cache) == contents(tmp_path / "local")


def test_a_job_put_back_in_its_middle_ends_with_the_same_arrays(slurm, study, tmp_path):
    long = replace(study, sparsity=replace(study.sparsity, epochs=30))
    pipeline.run(long, Store(tmp_path / "local"), lambda *_: None)
    cache = tmp_path / "cache"
    (job,) = submit(cache, [long])
    wait_for(lambda: jobs.progress(cache, job.id).stage, 60)
    name = read_record(job.folder).name
    subprocess.run(["scontrol", "requeue", name], check=True)
    wait_for(lambda: read_state(job.folder).state == "interrupted", 30)
    wait_for(lambda: taken_back(cache, job), 30)
    between = jobs.get(cache, job.id)
    assert between.active and between.returns and "lets some time pass" in between.note
    # Slurm waits for two minutes before it starts it again
    subprocess.run(["scontrol", "update", f"JobId={name}", "StartTime=now"], check=True)
    wait_for(lambda: ended(cache, [job]), 120)
    assert read_state(job.folder).state == "done" and jobs.get(cache, job.id).returns is False
    assert (job.folder / "node.txt").read_text().split()[2::3] == ["0", "1"]
    assert contents(cache) == contents(tmp_path / "local")


def test_a_cancelled_array_leaves_no_process(slurm, study, tmp_path):
    endless = replace(study, sparsity=replace(study.sparsity, epochs=3000))
    cache = tmp_path / "cache"
    found = submit(cache, of_seeds(endless, 0, 1, 2))
    wait_for(lambda: sum(read_state(job.folder).pid is not None for job in found) == 2, 60)
    assert at_work(cache)
    for job in found:
        jobs.cancel(cache, job.id)
    wait_for(lambda: ended(cache, found), 60)
    assert [read_state(job.folder).state for job in found] == ["cancelled"] * 3
    wait_for(lambda: not at_work(cache), 30)


def test_what_scancel_stops_in_its_middle_is_cancelled_and_can_be_gone_on_with(slurm, study, tmp_path):
    long = replace(study, sparsity=replace(study.sparsity, epochs=30))
    pipeline.run(long, Store(tmp_path / "local"), lambda *_: None)
    cache = tmp_path / "cache"
    (job,) = submit(cache, [long])
    wait_for(lambda: jobs.progress(cache, job.id).stage == "learning", 60)
    subprocess.run(["scancel", read_record(job.folder).name], check=True)
    wait_for(lambda: looked(cache, job).state == "cancelled", 60)
    wait_for(lambda: not at_work(cache), 30)
    assert not jobs.get(cache, job.id).active and not jobs.get(cache, job.id).error
    again = jobs.resume(cache, job.id)
    wait_for(lambda: ended(cache, [again]), 120)
    assert read_state(again.folder).state == "done" and contents(cache) == contents(tmp_path / "local")


def test_a_job_whose_node_dies_is_told_as_interrupted(slurm, study, tmp_path):
    endless = replace(study, sparsity=replace(study.sparsity, epochs=3000))
    cache = tmp_path / "cache"
    (job,) = submit(cache, [endless])
    wait_for(lambda: jobs.progress(cache, job.id).stage, 60)
    node = (job.folder / "node.txt").read_text().split()[0].split(".")[0]
    told = ["scontrol", "update", f"NodeName={node}"]
    subprocess.run([*told, "State=DOWN", "Reason=test"], check=True)
    try:
        # a node that has died reports no end of its run, whatever becomes of that
        wait_for(lambda: taken_back(cache, job), 30)
        wait_for(lambda: looked(cache, job).state == "interrupted", 90)
        between = jobs.get(cache, job.id)
        assert between.returns and between.note, read_state(job.folder)
        assert jobs.cancel(cache, job.id).state == "cancelled"
    finally:
        # refused where the node has come back by itself
        subprocess.run([*told, "State=RESUME"], capture_output=True)
    wait_for(lambda: not at_work(cache), 60)


def test_the_main_table_made_in_slurm_is_the_local_one_bit_for_bit(slurm, study, tmp_path):
    settings = tmp_path / "slurm.json"
    settings.write_text('{"partition": "main"}')
    for name, more in {"local": [], "slurm": ["--engine", "slurm", "--slurm", str(settings)]}.items():
        done = subprocess.run(reproduce(study, tmp_path / name, *more), cwd=PROJECT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    made, wanted = ({p.name: p.read_bytes() for p in (tmp_path / name / "out").glob("*.csv")} for name in ENGINES)
    assert "main.csv" in made and made == wanted
    assert contents(tmp_path / "slurm") == contents(tmp_path / "local")
    found = jobs.jobs(tmp_path / "slurm")
    assert len(found) == 2
    assert {job.engine for job in found} == {"slurm"} and len({read_record(job.folder).array for job in found}) == 1


def test_a_reproduction_that_is_stopped_takes_its_array_out_of_slurm(slurm, study, tmp_path):
    settings, endless = tmp_path / "slurm.json", replace(study, sparsity=replace(study.sparsity, epochs=3000))
    settings.write_text('{"partition": "main"}')
    cache = tmp_path / "cache"
    command = subprocess.Popen(reproduce(endless, cache, "--engine", "slurm", "--slurm", str(settings)), cwd=PROJECT)
    try:
        wait_for(lambda: any(jobs.progress(cache, job.id).stage for job in jobs.jobs(cache)), 90)
        command.send_signal(signal.SIGINT)
        assert command.wait(limit(60)) == 130
    finally:
        command.kill()
        command.wait()
    found = jobs.jobs(cache)
    wait_for(lambda: ended(cache, found), 60)
    assert {read_state(job.folder).state for job in found} == {"cancelled"}
    wait_for(lambda: not at_work(cache), 30)


def test_a_sweep_is_an_array_whose_jobs_compute_once_what_they_share(slurm, study, tmp_path):
    space = {"reliability.drift_quantile": (0.5, 0.7, 0.9)}
    sweep = Sweep("lines", replace(study, methods=("dense", "gprune")), space, until="masks")
    made, store, chosen = sweep.variations(), Store(tmp_path), SlurmSettings(partition="main")
    found = running.run(made, store, sweep.until, slurm=chosen)
    assert [one.state for one in found] == ["done"] * 3
    assert len({read_record(job.folder).array for job in jobs.jobs(tmp_path)}) == 1
    # two of them are at work at a time, on the same results
    assert set(begun(tmp_path).values()) == {1}
