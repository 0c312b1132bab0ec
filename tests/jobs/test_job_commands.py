"""Exports as jobs: the right command, one job for two clicks, the same command again, progress and end."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pruned_folder import save, small_decoder
from waiting import wait_for

from gprune.__main__ import EXIT_ERROR, EXIT_STOPPED, main
from gprune.jobs import folder as files
from gprune.jobs import get, progress, submit
from gprune.jobs.local import EXPORTS, worker_command
from gprune.jobs.state import read_state
from gprune.models.export import padded
from gprune.system.errors import CheckpointError

from .conftest import make_study


@pytest.mark.parametrize("command", EXPORTS)
def test_arguments_that_begin_with_an_export_are_its_command(command, tmp_path):
    arguments = (command, "/a folder/model; rm", "/out")
    expected = [sys.executable, "-m", "gprune", *arguments, "--job", str(tmp_path)]
    assert worker_command(tmp_path, arguments) == expected


def test_two_clicks_make_one_job_and_the_study_itself_another(cache, supervisors):
    arguments = ("pad", "/in", "/out")
    first = submit(cache, make_study(), arguments=arguments)
    assert submit(cache, make_study(), arguments=arguments).id == first.id
    others = [
        submit(cache, make_study()),
        submit(cache, make_study(), arguments=("pad", "/in", "/else")),
        submit(cache, make_study(), arguments=("gguf", "/in", "/out")),
    ]
    assert len({first.id, *(job.id for job in others)}) == 4
    assert first.command[3:6] == arguments and others[0].command[3] == "run"


def test_progress_and_end_reach_the_folder(tmp_path, monkeypatch, capsys):
    def fake(source: Path, target: Path, on_progress: Any) -> Any:
        for step in range(5):
            on_progress(step, 4, f"part {step}")
        return padded.PaddedModel(target, "llama", 8, 2, *(padded.Size(n, 4 * n) for n in (300, 100, 200)))

    monkeypatch.setattr(padded, "save", fake)
    assert main(["pad", "in", "out", "--job", str(tmp_path)]) == 0
    events = [json.loads(line) for line in (tmp_path / files.EVENTS).read_text().splitlines()]
    assert (events[0]["stage"], events[0]["done"], events[-1]["message"]) == ("pad", 0, "part 4")
    assert read_state(tmp_path).state == "done" and "50% of what pruning saved" in capsys.readouterr().out


def test_an_error_of_the_export_is_the_jobs_error(tmp_path, monkeypatch):
    def fail(*_: Any) -> Any:
        raise CheckpointError("'out' already holds something: choose a new folder or file name")

    monkeypatch.setattr(padded, "save", fail)
    assert main(["pad", "in", "out", "--job", str(tmp_path)]) == EXIT_ERROR
    state = read_state(tmp_path)
    assert (state.state, state.error[:27]) == ("failed", "'out' already holds somethi")


def test_a_cancelled_export_stops_at_its_next_step(tmp_path, monkeypatch):
    reached = []

    def fake(source: Path, target: Path, on_progress: Any) -> None:
        on_progress(0, 4, "reading")
        (tmp_path / files.CANCEL).touch()
        time.sleep(0.25)
        on_progress(1, 4, "padding")
        reached.append("further")

    monkeypatch.setattr(padded, "save", fake)
    assert main(["pad", "in", "out", "--job", str(tmp_path)]) == EXIT_STOPPED
    assert read_state(tmp_path).state == "cancelled" and not reached


@pytest.mark.long
@pytest.mark.process
def test_a_whole_export_runs_under_its_supervisor(cache, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    save(small_decoder(), cache / "in")
    out = cache / "exports" / "run" / "padded"
    job = submit(cache, make_study(), arguments=("pad", str(cache / "in"), str(out)))
    wait_for(lambda: not get(cache, job.id).active, 60)
    ended = get(cache, job.id)
    assert (ended.state, ended.error) == ("done", "")
    assert json.loads((out / "config.json").read_text())["model_type"] == "llama"
    assert progress(cache, job.id).stages[0].stage == "pad" and not list(out.glob("*.py"))
