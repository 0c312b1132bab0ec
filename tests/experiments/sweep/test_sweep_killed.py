"""A sweep of eight studies is killed in its middle, jobs and all, and goes on with nothing done twice."""

import contextlib
import json
import os
import subprocess
import sys

import psutil
import pytest
import tiny_study
from sweep.computed import begun, in_the_middle
from waiting import limit, wait_for

from gprune import jobs
from gprune.experiments.sweep.plan import from_file
from gprune.experiments.sweep.running import standings
from gprune.store import Store
from gprune.system.processes import process_start

SPACE = {
    "retention": [0.5, 0.6],
    "metric": ["flap", "wanda_sp"],
    "reliability.drift_quantile": [0.5, 0.9],
}
BEFORE = 2
"""studies that are done when the kill comes"""


def start(file, cache):
    environment = {**os.environ, "GPRUNE_JOB_SLOTS": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "gprune", "sweep", str(file), "--cache", str(cache)]
    log = open(cache.with_name("sweep.log"), "ab")
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def of_the_sweep(cache):
    """Every process that has the cache in its command line: the command and its jobs."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(cache) in " ".join(process.cmdline()) and process.pid != os.getpid():
                found.append(process)
    return found


def kill(cache):
    """Kills all of them outright, those as well that they start meanwhile; gives their number."""
    killed = set[int]()
    while found := of_the_sweep(cache):
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed.add(process.pid)
    # a process that is about to go has no command line any more
    wait_for(lambda: all(process_start(pid) is None for pid in killed))
    return len(killed)


def states(sweep, cache):
    """The state of every study, by the job that was the last to be at it, and in their order."""
    found = standings(sweep.variations(), Store(cache), sweep.until)
    return {one.job: one.state for one in found}, [one.state for one in found]


@pytest.mark.long
@pytest.mark.longest
@pytest.mark.process
def test_killed_in_its_middle_it_goes_on_and_computes_nothing_twice(tmp_path):
    cache = tmp_path / "cache"
    texts = tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "model", texts)
    study = tiny_study.settings(model, texts, methods=["dense", "gprune"])
    # of seconds, so that the kill meets it
    study["sparsity"]["epochs"] = 100
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps({"study": study, "space": SPACE, "until": "masks"}))
    sweep = from_file(file)
    assert sweep.count == 8
    process = start(file, cache)

    def in_its_middle():
        assert process.poll() is None, cache.with_name("sweep.log").read_text()
        # looking must not take the time of what is looked at
        if len(list(cache.glob("runs/*"))) <= BEFORE:
            return False
        found = jobs.jobs(cache)
        at_work = [in_the_middle(cache, job.id) for job in found if job.state == "running"]
        learns = any(place.startswith("learning/") for place in at_work)
        return sum(job.state == "done" for job in found) >= BEFORE and len(at_work) == 2 and learns

    try:
        wait_for(in_its_middle, 90)
        process.kill()
        process.wait()
        killed = 1 + kill(cache)
        # whoever looks finds out what is gone
        jobs.reconcile(cache)
        lost = [job for job in jobs.jobs(cache) if job.killed]
        before, (of_jobs, found) = len(begun(cache)), states(sweep, cache)
        of_lost = [of_jobs[job.id] for job in lost]
        # one of them may have come to the end of its study
        assert killed >= 3 and found.count("interrupted") == of_lost.count("interrupted") >= 1
        assert set(of_lost) <= {"interrupted", "done"}
        assert found.count("done") >= BEFORE and "missing" in found and "failed" not in found
        again = start(file, cache)
        assert again.wait(limit(120)) == 0, cache.with_name("sweep.log").read_text()
    finally:
        kill(cache)
    assert states(sweep, cache)[1] == ["done"] * 8
    counts = begun(cache)
    twice = {place: count for place, count in counts.items() if count > 1}
    torn = {in_the_middle(cache, job.id) for job in jobs.jobs(cache) if job.killed}
    print(f"{killed} processes killed, {len(lost)} jobs among them; {before} results begun before the kill,")
    print(f"{len(counts)} in all, {len(counts) - len(twice)} of them begun once, {len(twice)} twice: {twice}")
    assert twice.keys() <= torn and set(twice.values()) <= {2}
