"""The batch script of studies for Slurm: what it runs, what sbatch is given, and what shells make of it."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from waiting import wait_for

from gprune.__main__ import main
from gprune.experiments.sweep import shared_stages
from gprune.jobs import slurm
from gprune.store import Store
from gprune.study.demo import demo_study
from gprune.system.errors import JobError


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """A client of Slurm that numbers its jobs from 41; what it was given, a line each."""
    record, client = tmp_path / "given", tmp_path / "sbatch"
    client.write_text(f'#!/bin/sh\necho "$@" >> {record}\necho $((40 + $(wc -l < {record})))\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return record


def studies(**changes):
    name, values = next(iter(changes.items()))
    return [replace(demo_study(), **{name: value}) for value in values]


def test_an_array_waits_for_the_job_of_the_shared_stages(tmp_path, sbatch):
    cache = tmp_path / "cache"
    submission = slurm.submit_array(cache, studies(seed=(0, 1)), "drift", [(1, "positions")], "--gpus=1 --time=60")
    assert submission.job_ids == ("41", "42")
    first, second = sbatch.read_text().splitlines()
    script = f"{submission.folder}/batch.sh"
    assert first == f"--parsable {script}"
    assert second == f"--parsable --array=0-1 --dependency=afterok:41 --kill-on-invalid-dep=yes {script}"
    assert (submission.folder / "batch.sh").read_text() == submission.script
    assert "#SBATCH --gpus=1\n#SBATCH --time=60\n" in submission.script
    assert submission.script.endswith(f"compute {submission.folder}/study-1.json positions\n")


def test_without_shared_stages_there_is_one_array(tmp_path, sbatch):
    assert slurm.submit_array(tmp_path / "cache", studies(seed=(0,)), "all").job_ids == ("41",)
    assert "afterok" not in sbatch.read_text() and "--array=0-0" in sbatch.read_text()


def test_a_dry_run_prints_the_script_and_writes_nothing(tmp_path, sbatch, capsys):
    command = ["run", "demo", "--seeds", "0", "1", "--slurm", "--dry-run", "--cache", str(tmp_path / "cache")]
    assert main([*command, "--sbatch=--partition=gpu"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#!/bin/bash\n") and "#SBATCH --partition=gpu\n" in script and "# 2 studies" in script
    assert not sbatch.exists() and not (tmp_path / "cache" / "slurm").exists()


def test_a_refusal_is_one_sentence_and_cancels_the_job_before(tmp_path, sbatch, monkeypatch):
    (tmp_path / "scancel").write_text(f"#!/bin/sh\necho cancelled $1 >> {sbatch}\n")
    (tmp_path / "scancel").chmod(0o755)
    client = tmp_path / "sbatch"
    client.write_text(client.read_text() + '[ "$2" = "${2#--array}" ] || { echo "sbatch: error: no" >&2; exit 1; }\n')
    with pytest.raises(JobError, match="Slurm refused the job: no"):
        slurm.submit_array(tmp_path / "cache", studies(seed=(0, 1)), "drift", [(0, "drift")])
    assert sbatch.read_text().splitlines()[-1] == "cancelled 41"
    monkeypatch.setenv("PATH", str(tmp_path / "cache"))
    with pytest.raises(JobError, match="no sbatch on PATH"):
        slurm.submit_array(tmp_path / "cache", studies(seed=(0,)), "drift")


@pytest.mark.parametrize("options", ["gpu", "--gpus 1", "--a='"])
def test_options_that_sbatch_would_misread_are_refused(tmp_path, options):
    with pytest.raises(JobError, match="--sbatch"):
        slurm.submit_array(tmp_path, studies(seed=(0,)), "all", options=options, dry_run=True)


def test_shared_stages_are_the_longest_runs_that_nobody_needs_alone(tmp_path):
    store = Store(tmp_path)
    base = demo_study()
    # a threshold changes nothing before the adapted scores; another metric changes the statistics' scores
    lines = [base.with_settings({"reliability.drift_quantile": value}) for value in (0.5, 0.7)]
    rest = [study.with_settings({"metric": "wanda_sp" if base.metric != "wanda_sp" else "flap"}) for study in lines]
    assert shared_stages(lines, store, "perplexity") == [(0, "drift")]
    runs = shared_stages([*lines, *rest], store, "perplexity")
    assert [end for _, end in runs] == ["drift", "drift"] and [index for index, _ in runs] == [0, 2]
    assert shared_stages(lines[:1], store, "perplexity") == []


def run_script(tmp_path, monkeypatch, program, **environment):
    """Start the generated script with another program in place of ``gprune``."""
    (tmp_path / "run.py").write_text(program)
    monkeypatch.setattr(slurm.installation, "command", lambda _: [sys.executable, str(tmp_path / "run.py")])
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/requeued"\n')
    (tmp_path / "scontrol").chmod(0o755)
    cache = tmp_path / "it's $HOME; 50%"
    script = slurm.build_script(cache / "slurm", cache, 3, "masks", [(0, "drift"), (2, "drift")], [])
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(["bash", "-c", script], env={**os.environ, "PATH": path, **environment}), cache


WRITE = """import sys
from pathlib import Path
with open(Path(__file__).with_name("ran"), "a") as file:
    print(*sys.argv[1:], sep="|", file=file)
"""


@pytest.mark.process
@pytest.mark.parametrize(("task", "ran"), [("", [("0", "drift"), ("2", "drift")]), ("1", [("1", "masks")])])
def test_a_task_runs_its_study_and_the_job_before_runs_the_shared_stages(tmp_path, monkeypatch, task, ran):
    process, cache = run_script(tmp_path, monkeypatch, WRITE, SLURM_ARRAY_TASK_ID=task, SLURM_JOB_ID="7")
    assert process.wait() == 0
    lines = (tmp_path / "ran").read_text().splitlines()
    assert lines == [f"run|{cache}/slurm/study-{index}.json|--until|{end}|--cache|{cache}" for index, end in ran]


@pytest.mark.process
def test_a_study_that_fails_ends_the_job_with_its_exit_code(tmp_path, monkeypatch):
    process, _ = run_script(tmp_path, monkeypatch, WRITE + "sys.exit(2)\n", SLURM_JOB_ID="7")
    assert process.wait() == 2
    assert len((tmp_path / "ran").read_text().splitlines()) == 1 and not (tmp_path / "requeued").exists()


@pytest.mark.process
@pytest.mark.parametrize(("number", "requeued"), [(signal.SIGUSR1, "requeue 7_1\n"), (signal.SIGTERM, None)])
def test_the_warning_before_the_time_limit_saves_and_requeues(tmp_path, monkeypatch, number, requeued):
    # the handler stands before the file that this test waits for
    handler = "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(130))\n"
    program = handler + WRITE + "time.sleep(60)\n"
    task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "8"}
    process, _ = run_script(tmp_path, monkeypatch, program, **task)
    wait_for((tmp_path / "ran").exists)
    time.sleep(0.3)
    process.send_signal(number)
    if requeued is None:
        # Slurm sends TERM to the run as well: the shell waits for it
        assert process.poll() is None
        subprocess.run(["pkill", "-TERM", "-P", str(process.pid)], check=True)
    assert process.wait(30) == (130 if requeued else 143)
    record = tmp_path / "requeued"
    assert (record.read_text() if record.exists() else None) == requeued
