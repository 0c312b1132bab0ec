"""The queue from a terminal: what the app starts, the command line follows, and the other way round."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pruned_folder import save, small_decoder
from waiting import limit, wait_for

from gprune import jobs
from gprune.__main__ import EXIT_ERROR, EXIT_STOPPED, main
from gprune.jobs import folder as files
from gprune.jobs import get, progress, submit
from gprune.jobs.local import EXPORTS, SPEED, worker_command
from gprune.jobs.state import JobState, read_state, write_state
from gprune.models.export import padded
from gprune.system.errors import CheckpointError

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
        assert run(cache, "run", study, "--detach", "--label", "mine", "--until", "masks") == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second and first.split()[1:] == ["queued", "place", "1", "mine"]
    assert jobs.jobs(cache)[0].arguments == ("--until", "masks")
    waiting = jobs.submit(cache, make_study(2, name="two"))
    assert run(cache, "jobs", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    # as in a log, the newest stands last
    assert ["mine" in line for line in lines] == [True, False] and "place 2" in lines[1]
    assert run(cache, "jobs", "cancel", "last") == 0
    assert capsys.readouterr().out.split()[:2] == [waiting.id, "cancelled"]
    assert run(cache, "jobs", "list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert {job["label"]: job["state"] for job in listed} == {"mine": "queued", "two": "cancelled"}
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
    given = make_study(1).with_settings({"primary": "README.md", "choice.check_text": "./check.txt"})
    (tmp_path / "study.json").write_text(given.to_json())
    assert run(cache, "run", "study.json", "--detach") == 0
    kept = jobs.study_of(cache, jobs.jobs(cache)[0].id)
    assert (kept.primary, kept.choice.check_text) == (str(tmp_path / "README.md"), str(tmp_path / "check.txt"))
    assert kept.auxiliary == given.auxiliary


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


@pytest.mark.process
def test_another_command_is_detached_as_it_was_typed_and_reports_its_end(cache, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["export", "nowhere", "gprune", "out", "--detach", "--cache", str(cache)]
    monkeypatch.setattr(sys, "argv", ["gprune", *words])
    assert main(words) == 0
    (job,) = jobs.jobs(cache)
    assert job.label == f"export nowhere gprune out --cache {cache}" and job.cwd == str(tmp_path)
    wait_for(lambda: jobs.reconcile(cache) or not get(cache, job.id).active, 60)
    ended = get(cache, job.id)
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
    words = ["sweep", str(file), "--detach", "--cache", str(cache)]
    monkeypatch.setattr(sys, "argv", ["gprune", *words])
    assert main(words) == 0
    (job,) = jobs.jobs(cache)
    assert job.asks == "none" and job.exports
    wait_for(lambda: jobs.reconcile(cache) or not get(cache, job.id).active, 60)
    assert get(cache, job.id).state == "failed" and "no.txt" in get(cache, job.id).error


def test_only_the_newest_that_ended_are_listed_unasked(cache, workers, capsys):
    for seed in range(22):
        job = jobs.submit(cache, make_study(seed))
        write_state(job.folder, JobState(state="failed", error="no such text", ended=1.0))
    assert run(cache, "jobs", "list") == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 20 and "no such text" in told.out
    assert "2 jobs that ended earlier are not listed: --all lists them" in told.err
    assert run(cache, "jobs", "list", "--all") == 0
    assert len(capsys.readouterr().out.splitlines()) == 22


def test_a_job_that_cannot_be_meant_is_told_in_a_sentence(cache, workers, capsys):
    assert run(cache, "jobs", "logs", "last") == 2
    assert "so none is the last" in capsys.readouterr().err
    for seed in range(2):
        jobs.submit(cache, make_study(seed))
    assert run(cache, "jobs", "cancel", "20") == 2
    assert "2 jobs begin or end with '20': type more of the id" in capsys.readouterr().err
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


@pytest.mark.parametrize("command", (*EXPORTS, SPEED))
def test_arguments_that_begin_with_an_export_are_its_command(command, tmp_path):
    arguments = (command, "/a folder/model; rm", "/out")
    expected = [sys.executable, "-m", "gprune", *arguments, "--job", str(tmp_path)]
    assert worker_command(tmp_path, arguments) == expected


def test_two_clicks_make_one_job_and_the_study_itself_another_and_progress_and_end_reach_the_folder(
    cache, workers, tmp_path, monkeypatch, capsys
):
    arguments = ("export", "/in", "/out", "--padded")
    first = submit(cache, make_study(), arguments=arguments)
    assert submit(cache, make_study(), arguments=arguments).id == first.id
    others = [
        submit(cache, make_study()),
        submit(cache, make_study(), arguments=("export", "/in", "/else", "--padded")),
        submit(cache, make_study(), arguments=("gguf", "/in", "/out")),
    ]
    assert len({first.id, *(job.id for job in others)}) == 4
    assert first.command[3:7] == arguments and others[0].command[3] == "run"

    def fake(source, target, on_progress):
        for step in range(5):
            on_progress(step, 4, f"part {step}")
        return target

    monkeypatch.setattr(padded, "save_padded", fake)
    assert main(["export", "in", "out", "--padded", "--job", str(tmp_path)]) == 0
    events = [json.loads(line) for line in (tmp_path / files.EVENTS).read_text().splitlines()]
    assert (events[0]["stage"], events[0]["done"], events[-1]["message"]) == ("export", 0, "part 4")
    assert (
        read_state(tmp_path).state == "done"
        and "every layer padded with zeros to the widest" in capsys.readouterr().out
    )


def test_an_error_of_the_export_is_the_jobs_error(tmp_path, monkeypatch):
    def fail(*_):
        raise CheckpointError("'out' already holds something: choose a new folder or file name")

    monkeypatch.setattr(padded, "save_padded", fail)
    assert main(["export", "in", "out", "--padded", "--job", str(tmp_path)]) == EXIT_ERROR
    state = read_state(tmp_path)
    assert (state.state, state.error[:27]) == ("failed", "'out' already holds somethi")


def test_a_cancelled_export_stops_at_its_next_step(tmp_path, monkeypatch):
    reached = []

    def fake(source, target, on_progress):
        on_progress(0, 4, "reading")
        write_state(tmp_path, replace(read_state(tmp_path), state="cancelling"))
        time.sleep(0.6)
        on_progress(1, 4, "padding")
        reached.append("further")

    monkeypatch.setattr(padded, "save_padded", fake)
    assert main(["export", "in", "out", "--padded", "--job", str(tmp_path)]) == EXIT_STOPPED
    assert read_state(tmp_path).state == "cancelled" and not reached


@pytest.mark.long
@pytest.mark.process
def test_a_whole_export_runs_as_a_job(cache, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    save(small_decoder(), cache / "in")
    out = cache / "exports" / "run" / "padded"
    job = submit(cache, make_study(), arguments=("export", str(cache / "in"), str(out), "--padded"))
    wait_for(lambda: not get(cache, job.id).active, 60)
    ended = get(cache, job.id)
    assert (ended.state, ended.error) == ("done", "")
    assert json.loads((out / "config.json").read_text())["model_type"] == "llama"
    assert progress(cache, job.id).stages[0].stage == "export" and not list(out.glob("*.py"))
