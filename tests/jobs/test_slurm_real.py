"""A sweep in a real Slurm of two slots on this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_study
from run_starters import contents
from waiting import wait_for

from gprune.pipeline import runs
from gprune.store import Store

from . import slurm_machine

PROJECT = Path(__file__).parents[2]
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
        yield


def gprune(*words):
    command = [sys.executable, "-m", "gprune", *map(str, words)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def tasks(job_id):
    """State of every task that Slurm still knows, by its number in the array."""
    command = ["squeue", "-h", "-r", "--states=all", f"--jobs={job_id}", "-o", "%K %T"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split() for line in listed.stdout.splitlines())


def stages(cache, run):
    record = runs.read(Store(cache), run)
    return record["state"], record["stages"]


def test_a_sweep_of_three_survives_a_requeue_and_computes_shared_stages_once(slurm, tmp_path):
    texts = tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "model", texts)
    study = tiny_study.settings(model, texts, methods=["dense", "gprune"])
    study["sparsity"]["epochs"] = 60
    file = tmp_path / "lines.json"
    space = {"reliability.drift_quantile": [0.5, 0.7, 0.9]}
    file.write_text(json.dumps({"study": study, "space": space, "until": "masks"}))
    local, cache = tmp_path / "local", tmp_path / "it's $HOME; 50%"
    gprune("sweep", file, "--cache", local)
    done = gprune("sweep", file, "--slurm", "--sbatch=--partition=main --cpus-per-task=1", "--cache", cache)
    assert done.stdout.startswith("#!/bin/bash\n")
    first, array = done.stderr.split("submitted as ")[1].split(";")[0].split(" and ")
    assert set(tasks(array).values()) == {"PENDING"}
    # the shared stages come first, then the middle task is put back while it learns
    wait_for(lambda: "RUNNING" in tasks(array).values(), 90)
    names = list(dict(runs.read_all(Store(cache))))
    assert len(names) == 1 and stages(cache, names[0])[0] in ("done", "running")
    shared = {entry["key"] for entry in stages(cache, names[0])[1].values()}
    wait_for(lambda: len(dict(runs.read_all(Store(cache)))) > 1, 60)
    task = next(task for task, state in tasks(array).items() if state == "RUNNING")
    subprocess.run(["scontrol", "requeue", f"{array}_{task}"], check=True)
    wait_for(lambda: tasks(array).get(task) == "PENDING", 60)
    # Slurm waits for two minutes before it starts it again
    subprocess.run(["scontrol", "update", f"JobId={array}_{task}", "StartTime=now"], check=True)
    wait_for(lambda: not {"PENDING", "RUNNING", "COMPLETING"} & set(tasks(array).values()), 240)
    assert set(tasks(array).values()) <= {"COMPLETED"}
    listed = dict(runs.read_all(Store(cache)))
    assert len(listed) == 3 and {runs.current_state(cache, record) for record in listed.values()} == {"done"}
    assert contents(cache) == contents(local)
    # what the first job computed was computed by no task
    logs = [path.read_text() for path in (cache / "slurm").glob("*/log-*.txt")]
    assert len(logs) == 4 and shared
    entries = [record["stages"].values() for record in listed.values()]
    computed = [{entry["key"] for entry in of_run if not entry["reused"]} & shared for of_run in entries]
    assert sorted(map(len, computed))[:2] == [0, 0] and set.union(*computed) <= shared
    again = gprune("sweep", file, "--slurm", "--cache", cache)
    assert again.stderr == "3 studies: all done\n" and not again.stdout
