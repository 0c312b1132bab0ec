"""The queue from a terminal: what the app starts, the command line follows, and the other way round."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import limit, wait_for

from gprune import jobs
from gprune.__main__ import main
from gprune.jobs import folder as files
from gprune.jobs import get
from gprune.jobs.folder import JobState, read_state, write_state
from gprune.models.export import padded

from .conftest import fake_command, make_study


def run(cache, *words):
    return main([*words, "--cache", str(cache)])


@pytest.fixture
def study(tmp_path):
    file = tmp_path / "study.json"
    file.write_text(make_study(1, name="one").to_json())
    return str(file)


def test_a_study_is_detached_once_listed_cancelled_and_resumed(cache, workers, study, capsys):
    for _ in range(2):
        assert run(cache, "run", study, "--detach", "--until", "masks") == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second and first.split()[1:] == ["queued", "place", "1", "one"]
    assert jobs.jobs(cache)[0].arguments == ("--until", "masks")
    waiting = jobs.submit(cache, make_study(2, name="two"))
    assert run(cache, "jobs", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    # as in a log, the newest stands last
    assert ["one" in line.split() for line in lines] == [True, False] and "place 2" in lines[1]
    assert run(cache, "jobs", "cancel", "last") == 0
    assert capsys.readouterr().out.split()[:2] == [waiting.id, "cancelled"]
    assert run(cache, "jobs", "list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert {job["label"]: job["state"] for job in listed} == {"one": "queued", "two": "cancelled"}
    assert run(cache, "jobs", "resume", waiting.id[-8:]) == 0
    again = capsys.readouterr().out.split()
    assert again[0] != waiting.id and again[1] == "queued"


def test_every_seed_of_a_detached_run_is_a_job(cache, workers, study, capsys):
    assert run(cache, "run", study, "--seeds", "3", "4", "--anyway", "--detach") == 0
    listed = jobs.jobs(cache)
    assert [jobs.study_of(cache, job.id).seed for job in listed] == [4, 3] and listed[0].arguments == ("--anyway",)


def test_a_detached_study_means_the_files_of_the_folder_in_which_it_was_started(cache, workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("README.md", "check.txt"):
        (tmp_path / name).write_text("a text of mine\n")
    supplied = make_study(1).with_settings({"primary": "README.md", "choice.check_text": "./check.txt"})
    (tmp_path / "study.json").write_text(supplied.to_json())
    assert run(cache, "run", "study.json", "--detach") == 0
    retained = jobs.study_of(cache, jobs.jobs(cache)[0].id)
    assert (retained.primary, retained.choice.check_text) == (str(tmp_path / "README.md"), str(tmp_path / "check.txt"))
    assert retained.auxiliary == supplied.auxiliary


def test_last_is_the_newest_job_for_every_command(cache, workers, capsys):
    for seed in range(3):
        job = jobs.submit(cache, make_study(seed))
        (job.folder / jobs.LOG).write_text(f"of {seed}\n")
        # the newest is not the one that ended last
        write_state(job.folder, JobState(state="failed", error="a", ended=9.0 - seed))
    assert run(cache, "jobs", "logs", "last") == 0 and capsys.readouterr().out == "of 2\n"
    assert run(cache, "jobs", "resume", "last") == 0
    again = jobs.jobs(cache)[0]
    assert capsys.readouterr().out.split()[0] == again.id
    assert jobs.study_of(cache, again.id).seed == 2


def run_detached(monkeypatch, cache, *words):
    """Detach a command, and return its job as it ends."""
    words = [*words, "--detach", "--cache", str(cache)]
    monkeypatch.setattr(sys, "argv", ["gprune", *words])
    assert main(words) == 0
    (job,) = jobs.jobs(cache)
    wait_for(lambda: jobs.reconcile(cache) or not get(cache, job.id).active, 60)
    return get(cache, job.id)


@pytest.mark.process
def test_another_command_is_detached_as_it_was_typed_and_reports_its_end(cache, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ended = run_detached(monkeypatch, cache, "export", "nowhere", "gprune", "out")
    assert ended.label == f"export nowhere gprune out --cache {cache}" and ended.cwd == str(tmp_path)
    assert ended.state == "failed" and "nowhere" in ended.error and not ended.killed


def test_an_abbreviated_detach_is_refused_since_its_job_would_detach_again(cache, workers, capsys):
    pytest.raises(SystemExit, main, ["map", "a-run", "--layer", "3", "--detac", "--cache", str(cache)])
    assert "unrecognized arguments: --detac" in capsys.readouterr().err and not workers


@pytest.mark.process
def test_a_detached_sweep_submits_its_studies_and_needs_no_device(cache, tmp_path, monkeypatch):
    file = tmp_path / "sweep.json"
    texts = {"primary": str(tmp_path / "no.txt"), "auxiliary": "python-reference"}
    study = {"model": "demo", **texts, "evaluation": {"texts": []}}
    file.write_text(json.dumps({"study": study, "space": {"seed": [0, 1]}}))
    job = run_detached(monkeypatch, cache, "sweep", str(file))
    assert job.asks == "none" and job.creates_no_run and job.state == "failed" and "no.txt" in job.error


def test_a_job_that_cannot_be_meant_is_told_in_a_sentence(cache, workers, capsys):
    assert run(cache, "jobs", "logs", "last") == 2
    assert "0 jobs match 'last': give an id" in capsys.readouterr().err
    for seed in range(2):
        jobs.submit(cache, make_study(seed))
    assert run(cache, "jobs", "cancel", "20") == 2
    assert "2 jobs match '20': give an id of `jobs list`" in capsys.readouterr().err
    done = jobs.jobs(cache)[0]
    write_state(done.folder, JobState(state="done", ended=1.0))
    assert run(cache, "jobs", "resume", done.id) == 2
    assert f"job {done.id} is done" in capsys.readouterr().err
    assert run(cache, "jobs", "logs", done.id, "-n", "-1") == 2
    assert "--lines" in capsys.readouterr().err


@pytest.mark.process
def test_a_log_is_followed_to_the_end_of_its_job(cache):
    job = jobs.submit(cache, make_study(0), "held", ["hold"], fake_command)
    wait_for(lambda: "worker hold" in jobs.log_tail(cache, job.id))
    command = [sys.executable, "-m", "gprune", "jobs", "logs", job.id, "-f", "-n", "5", "--cache", str(cache)]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert follower.stdout is not None and follower.stdout.readline() == "worker hold\n"
    with open(job.folder / jobs.LOG, "a") as log:
        print("said later\nand half a line", end="", file=log, flush=True)
    assert follower.stdout.readline() == "said later\n"
    assert follower.poll() is None
    (job.folder / "go").touch()
    rest, _ = follower.communicate(timeout=limit(30))
    assert rest.startswith("and half a line") and follower.returncode == 0
    assert read_state(job.folder).finished


def test_progress_and_end_of_an_export_reach_the_folder(tmp_path, monkeypatch, capsys):
    def fake(source, target, on_progress):
        for step in range(5):
            on_progress(step, 4, f"part {step}")
        return target

    monkeypatch.setattr(padded, "save_padded", fake)
    assert main(["export", "in", "out", "--padded", "--job", str(tmp_path)]) == 0
    events = [json.loads(line) for line in (tmp_path / files.EVENTS).read_text().splitlines()]
    assert (events[0]["stage"], events[0]["done"], events[-1]["message"]) == ("export", 0, "part 4")
    assert read_state(tmp_path).state == "done"
    assert "every layer padded with zeros to the widest" in capsys.readouterr().out
