"""Missing studies become jobs, a few at a time; what has finished or still runs is never started again."""

import json
import signal
import subprocess
import sys

import pytest
from reproduction.fake_runs import a_series, command, finish
from waiting import wait_for

from gprune import jobs
from gprune.experiments.reproduction import tables, work, writing
from gprune.experiments.scheduler import Schedule, Status
from gprune.pipeline import runs
from gprune.store import Store
from gprune.system import machine

pytestmark = pytest.mark.process


def a_work(cache, *names):
    series = a_series(samples=16)
    return work.TableWork(Store(cache), series, tables.choose_tables(names), cache / "out")


def some_entries(name="ablation"):
    return work.needed_studies(tables.choose_tables([name]), a_series(samples=16))


def behave(cache, **behaviours):
    (cache / "behaviour.json").write_text(json.dumps(behaviours))


def test_only_missing_studies_become_jobs_and_a_second_call_starts_none(cache):
    done = some_entries()[0]
    finish(Store(cache), done)
    observed: list[Status] = []
    ended: list[tuple[str, str]] = []
    created = a_work(cache, "ablation")
    (table,) = created.run(observed.append, lambda entry, why: ended.append((entry.study.name, why)), command)
    assert table.filled == 4
    expected = [entry.study.name for entry in some_entries()[1:]]
    assert sorted(job.label for job in jobs.jobs(cache)) == sorted(expected)
    assert sorted(ended) == sorted((name, "") for name in expected)
    assert {job.arguments for job in jobs.jobs(cache)} == {("--until", "perplexity")}
    assert (observed[-1].done, observed[-1].total) == (2, 2)
    a_work(cache, "ablation").run(build=command)
    assert len(jobs.jobs(cache)) == 2


def test_a_failed_study_leaves_its_rows_with_the_reason_and_the_rest_goes_on(cache):
    first, second, _ = some_entries()
    behave(cache, **{second.study.name: "fail"})
    created = a_work(cache, "ablation")
    (table,) = created.run(build=command)
    reasons = [answer.reason for answer in table.answers]
    assert reasons == ["", "the text 'x' is empty: choose another", "", ""]
    index = writing.read_index(cache / "out") or {}
    assert index["tables"]["ablation"]["filled"] == 3
    assert created.failures == {second.shared: "the text 'x' is empty: choose another"}


@pytest.mark.long
def test_no_more_jobs_are_open_than_run_and_one_waits(cache):
    entries = some_entries("fine-grained")[:5]
    behave(cache, **{entry.study.name: "hold" for entry in entries})
    most = 0

    def watch(status):
        nonlocal most
        most = max(most, sum(job.active for job in jobs.jobs(cache)))
        if status.done == 0 and most == 3:
            (cache / "go").touch()

    Schedule(cache, watch, build=command).run(entries)
    assert {job.state for job in jobs.jobs(cache)} == {"done"}
    assert most == 3
    assert len(jobs.jobs(cache)) == 5


@pytest.mark.long
def test_what_measures_speed_comes_last_and_runs_alone(cache):
    entries = [*some_entries("speed")[-2:], *some_entries()]
    timed = {entry.study.name for entry in entries if entry.timed}
    assert [entry.timed for entry in entries] == [True, True, False, False, False]
    started: list[str] = []

    def watch(_):
        active = [job.label for job in jobs.jobs(cache) if job.active]
        if timed & set(active):
            assert len(active) == 1
        started.extend(name for name in active if name not in started)

    Schedule(cache, watch, build=command).run(entries)
    assert {job.state for job in jobs.jobs(cache)} == {"done"}
    labels = [job.label for job in sorted(jobs.jobs(cache), key=lambda job: job.created)]
    assert set(labels[-2:]) == timed and len(labels) == 5


def test_a_job_that_is_under_way_is_waited_for(cache):
    entry = some_entries()[1]
    behave(cache, **{entry.study.name: "hold"})
    job = jobs.submit(cache, entry.study, "by hand", ("--until", "perplexity"), command)
    wait_for(lambda: jobs.progress(cache, job.id).message == "holding")
    observed: list[Status] = []

    def watch(status):
        observed.append(status)
        (cache / "go").touch()

    reasons: list[str] = []
    Schedule(cache, watch, lambda _, reason: reasons.append(reason), lambda _: not observed, command).run([entry])
    assert reasons == [""]
    assert [result.id for result in jobs.jobs(cache)] == [job.id]
    assert "masks_gprune 1/2" in {status.stage for status in observed}


@pytest.mark.long
def test_devices_have_one_study_each(cache, monkeypatch):
    monkeypatch.setattr(machine, "cards", lambda: ("a card", "a card"))
    monkeypatch.setenv("GPRUNE_JOB_DEVICES", "cuda:0 cuda:1")
    entries = some_entries()
    behave(cache, **{entry.study.name: "hold" for entry in entries})
    observed = []

    def watch(_):
        result = jobs.jobs(cache)
        observed.append(sorted(job.device for job in result if job.state == "running"))
        if observed[-1] == ["cuda:0", "cuda:1"] and not (cache / "go").exists():
            assert [job.state for job in result].count("queued") == 1
            (cache / "go").touch()

    (table,) = a_work(cache, "ablation").run(watch, build=command)
    assert ["cuda:0", "cuda:1"] in observed and table.filled == 4
    assert all(len(set(devices)) == len(devices) for devices in observed)
    # the study does not say which GPU it had, so that it is the same on all of them
    assert {job.device for job in jobs.jobs(cache)} == {"cuda:0", "cuda:1"}
    assert {jobs.study_of(cache, job.id).device for job in jobs.jobs(cache)} == {"auto"}
    a_work(cache, "ablation").run(build=command)
    assert len(jobs.jobs(cache)) == 3


def test_an_interrupt_cancels_the_schedules_own_jobs_only(cache):
    entries = some_entries()
    behave(cache, **{entry.study.name: "hold" for entry in entries})
    other = jobs.submit(cache, entries[0].study, "mine", ("--until", "perplexity"), command)
    wait_for(lambda: jobs.progress(cache, other.id).message == "holding")

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Schedule(cache, watch=interrupt, build=command).run(entries)
    own = [job for job in jobs.jobs(cache) if job.id != other.id]
    wait_for(lambda: all(not jobs.get(cache, job.id).active for job in own))
    assert [jobs.get(cache, job.id).state for job in own] == ["cancelled", "cancelled"]
    assert jobs.get(cache, other.id).state == "running"


SCRIPT = """
import sys
from pathlib import Path
from reproduction.fake_runs import a_series, command
from gprune.experiments.reproduction import tables, work
from gprune.store import Store

cache = Path(sys.argv[1])
made = work.TableWork(Store(cache), a_series(samples=16), tables.choose_tables(["ablation"]), cache / "out")
made.run(build=command)
"""


def test_killed_and_started_again_it_goes_on_with_nothing_done_twice(cache):
    names = [entry.study.name for entry in some_entries()]
    behave(cache, **{name: "hold" for name in names[1:]})
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(cache)])

    def one_is_done_and_two_hold():
        assert process.poll() is None, "the schedule has ended before it was killed"
        return len(jobs.jobs(cache)) == 3 and len(dict(runs.read_all(Store(cache)))) == 1

    try:
        wait_for(one_is_done_and_two_hold)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    (cache / "go").touch()
    (table,) = a_work(cache, "ablation").run(build=command)
    assert table.filled == 4
    assert sorted(job.label for job in jobs.jobs(cache)) == sorted(names)
    assert {job.state for job in jobs.jobs(cache)} == {"done"}
    hidden = [path.name for path in (cache / "out").iterdir() if path.name.startswith(".")]
    assert hidden in ([], [".index.json.lock"])
