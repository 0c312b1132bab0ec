"""The queue from a terminal: what the app starts, the command line follows, and the other way round."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import limit, wait_for

from gprune import jobs
from gprune.__main__ import main
from gprune.jobs.state import JobState, read_state, write_state

from .conftest import fake_command, make_study


def run(cache: Path, *words: str) -> int:
    return main([*words, "--cache", str(cache)])


@pytest.fixture
def study(tmp_path: Path) -> str:
    file = tmp_path / "study.json"
    file.write_text(make_study(1, name="one").to_json())
    return str(file)


def test_a_study_is_submitted_once_listed_and_cancelled(cache, supervisors, study, capsys):
    assert run(cache, "submit", study, study) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == second.split()[:2] and first.split()[1] == "running" and "one" in first
    waiting = jobs.submit(cache, make_study(2, name="two"))
    assert run(cache, "jobs") == 0
    lines = capsys.readouterr().out.splitlines()
    # as in a log, the newest stands last
    assert [line.split()[1] for line in lines] == ["running", "queued"] and "place 1" in lines[1]
    assert run(cache, "cancel", "last") == 0
    assert capsys.readouterr().out.split()[:2] == [waiting.id, "cancelled"]
    assert run(cache, "jobs", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {job["label"]: job["state"] for job in found} == {"one": "running", "two": "cancelled"}
    assert run(cache, "resume", waiting.id[-8:]) == 0
    again = capsys.readouterr().out.split()
    assert again[0] != waiting.id and again[1] == "queued"


def test_a_job_may_take_several_gpus_for_one_model(cache, supervisors, study, capsys):
    assert run(cache, "submit", study, "--model-gpus", "2") == 0
    (job,) = jobs.jobs(cache)
    assert list(job.command)[-2:] == ["--model-gpus", "2"]
    assert run(cache, "submit", study, "--model-gpus", "0") == 2
    assert "--model-gpus must be 1 to 64 (got 0)" in capsys.readouterr().err


def test_only_the_newest_that_ended_are_listed_unasked(cache, supervisors, capsys):
    for seed in range(22):
        job = jobs.submit(cache, make_study(seed))
        write_state(job.folder, JobState(state="failed", error="no such text", ended=1.0))
    assert run(cache, "jobs") == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 20 and "no such text" in told.out
    assert "2 jobs that ended earlier are not listed: --all lists them" in told.err
    assert run(cache, "jobs", "--all") == 0
    assert len(capsys.readouterr().out.splitlines()) == 22


def test_a_job_that_cannot_be_meant_is_told_in_a_sentence(cache, supervisors, capsys):
    assert run(cache, "logs", "last") == 2
    assert "is not a job id" in capsys.readouterr().err
    for seed in range(2):
        jobs.submit(cache, make_study(seed))
    assert run(cache, "cancel", "20") == 2
    assert "2 jobs begin or end with '20': type more of the id" in capsys.readouterr().err
    done = jobs.jobs(cache)[0]
    write_state(done.folder, JobState(state="done", ended=1.0))
    assert run(cache, "resume", done.id) == 2
    assert f"job {done.id} is done" in capsys.readouterr().err
    assert run(cache, "logs", done.id, "-n", "-1") == 2
    assert "--lines" in capsys.readouterr().err


def test_the_last_lines_of_a_log_are_plain_text(cache, supervisors, capsys):
    job = jobs.submit(cache, make_study(0))
    (job.folder / jobs.LOG).write_text("first\nsecond \x1b[31mred\x1b[0m\n")
    write_state(job.folder, JobState(state="failed", error="over", ended=1.0))
    assert run(cache, "logs", "last", "-n", "1") == 0
    told = capsys.readouterr()
    assert told.out == "second red\n" and "failed" in told.err and "over" in told.err


@pytest.mark.process
def test_a_log_is_followed_to_the_end_of_its_job(cache):
    job = jobs.submit(cache, make_study(0), "held", ["hold"], fake_command)
    wait_for(lambda: "worker hold" in jobs.log_tail(cache, job.id))
    command = [sys.executable, "-m", "gprune", "logs", job.id, "-f", "-n", "5", "--cache", str(cache)]
    follower = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], env=os.environ
    )
    assert follower.stdout is not None and follower.stdout.readline() == "worker hold\n"
    with open(job.folder / jobs.LOG, "a") as log:
        print("said later\nand half a line", end="", file=log, flush=True)
    assert follower.stdout.readline() == "said later\n"
    assert follower.poll() is None
    (job.folder / "go").touch()
    rest, _ = follower.communicate(timeout=limit(30))
    assert rest.startswith("and half a line") and follower.returncode == 0
    assert read_state(job.folder).finished
