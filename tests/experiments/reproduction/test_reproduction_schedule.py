"""Missing studies become jobs, a few at a time; what has finished or still runs is never started again."""

import signal
import subprocess
import sys

import pytest
from pretend_worker import behave
from reproduction.fake_runs import a_series, command, finish
from waiting import wait_for

from gprune import jobs
from gprune.experiments.reproduction import catalogue, tables, work
from gprune.experiments.scheduler import Schedule
from gprune.pipeline import runs
from gprune.store import Store

pytestmark = pytest.mark.process


def a_work(cache, *names):
    series = a_series(samples=16)
    return work.TableWork(Store(cache), series, tables.choose_tables(names), cache / "out")


def some_entries(name="ablation"):
    return work.needed_studies(tables.choose_tables([name]), a_series(samples=16))


def test_only_missing_studies_become_jobs_and_a_second_call_starts_none(cache):
    done = some_entries()[0]
    finish(Store(cache), done)
    observed, ended = [], []
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
    behave(cache, {second.study.name: "fail"})
    created = a_work(cache, "ablation")
    (table,) = created.run(build=command)
    reasons = [answer.reason for answer in table.answers]
    assert reasons == ["", "the text 'x' is empty: choose another", "", ""]
    index = catalogue.read_index(cache / "out") or {}
    assert index["tables"]["ablation"]["filled"] == 3
    assert created.failures == {second.shared: "the text 'x' is empty: choose another"}


@pytest.mark.long
def test_no_more_jobs_are_open_than_run_and_one_waits(cache):
    entries = some_entries("fine-grained")[:5]
    behave(cache, {entry.study.name: "hold" for entry in entries})
    open_counts = []

    def watch(status):
        open_counts.append(sum(job.active for job in jobs.jobs(cache)))
        if status.done == 0 and open_counts[-1] == 3:
            (cache / "go").touch()

    Schedule(cache, watch, build=command).run(entries)
    assert {job.state for job in jobs.jobs(cache)} == {"done"}
    assert max(open_counts) == 3 and len(jobs.jobs(cache)) == 5


@pytest.mark.long
def test_what_measures_speed_comes_last_and_runs_alone(cache):
    entries = [*some_entries("speed")[-2:], *some_entries()]
    timed = {entry.study.name for entry in entries if entry.timed}
    assert [entry.timed for entry in entries] == [True, True, False, False, False]

    def watch(_):
        active = [job.label for job in jobs.jobs(cache) if job.active]
        assert len(active) == 1 or not timed & set(active)

    Schedule(cache, watch, build=command).run(entries)
    assert {job.state for job in jobs.jobs(cache)} == {"done"}
    labels = [job.label for job in sorted(jobs.jobs(cache), key=lambda job: job.created)]
    assert set(labels[-2:]) == timed and len(labels) == 5


def test_a_job_that_is_under_way_is_waited_for(cache):
    entry = some_entries()[1]
    behave(cache, {entry.study.name: "hold"})
    job = jobs.submit(cache, entry.study, "by hand", ("--until", "perplexity"), command)
    wait_for(lambda: jobs.progress(cache, job.id).message == "holding")
    observed = []

    def watch(status):
        observed.append(status)
        (cache / "go").touch()

    reasons = []
    Schedule(cache, watch, lambda _, reason: reasons.append(reason), lambda _: not observed, command).run([entry])
    assert reasons == [""]
    assert [result.id for result in jobs.jobs(cache)] == [job.id]
    assert "masks_gprune 1/2" in {status.stage for status in observed}


def test_an_interrupt_cancels_the_schedules_own_jobs_only(cache):
    entries = some_entries()
    behave(cache, {entry.study.name: "hold" for entry in entries})
    other = jobs.submit(cache, entries[0].study, "mine", ("--until", "perplexity"), command)
    wait_for(lambda: jobs.progress(cache, other.id).message == "holding")

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Schedule(cache, watch=interrupt, build=command).run(entries)
    started_here = [job for job in jobs.jobs(cache) if job.id != other.id]
    wait_for(lambda: all(not jobs.get(cache, job.id).active for job in started_here))
    assert [jobs.get(cache, job.id).state for job in started_here] == ["cancelled", "cancelled"]
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
    behave(cache, {name: "hold" for name in names[1:]})
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
