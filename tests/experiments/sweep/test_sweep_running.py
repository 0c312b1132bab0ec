"""The studies of a sweep become jobs; what they share is computed once, and what failed runs again."""

import contextlib
import json
from collections import Counter

import pytest
import tiny_study
from pretend_worker import behave
from sweep.fake_sweep import UNTIL, a_sweep, command

from gprune import jobs
from gprune.__main__ import main
from gprune.experiments import sweep as sweeps
from gprune.experiments.sweep import Sweep, from_file, study_statuses
from gprune.jobs import queue
from gprune.jobs.folder import JobState, write_state
from gprune.pipeline import opened, runs
from gprune.pipeline.stages import stages_by_name, statistics
from gprune.store import Store

pytestmark = pytest.mark.process


def states(cache, sweep):
    return [status.state for status in study_statuses(sweep.variations(), Store(cache), UNTIL)]


def run(cache, sweep, **how):
    entries = sweeps.run(sweep.variations(), Store(cache), UNTIL, build=command, **how)  # type: ignore[arg-type]
    return [(entry.state, entry.detail) for entry in entries]


@pytest.mark.long
def test_a_failure_is_told_and_tried_again_by_the_next_call(cache):
    sweep = a_sweep(0, 1, 2, 3)
    assert states(cache, sweep) == ["missing"] * 4
    behave(cache, {"1": "fail"})
    failures: list[tuple[int, str]] = []
    entries = run(cache, sweep, on_end=lambda entry, why: failures.append((entry.study.seed, why)))
    why = "the text 'x' is empty: choose another"
    assert entries == [("done", ""), ("failed", why), ("done", ""), ("done", "")]
    assert sorted(failures) == [(0, ""), (1, why), (2, ""), (3, "")]
    names = list(dict(runs.read_all(Store(cache))))
    assert len(names) == 3 and all(name.startswith("seeds-seed-") for name in names)
    assert {job.label for job in jobs.jobs(cache)} == {f"seeds: seed {seed}" for seed in range(4)}
    behave(cache, {})
    assert run(cache, sweep) == [("done", "")] * 4 and len(jobs.jobs(cache)) == 5


def test_killed_and_cancelled_jobs_are_gone_on_with(cache, monkeypatch):
    sweep = a_sweep(0, 1, 2)
    first, second, third = sweep.variations()
    with monkeypatch.context() as patch:
        patch.setattr(queue, "start_worker", lambda *_: None)
        submitted = [jobs.submit(cache, status.study, "", ("--until", UNTIL), command) for status in (first, second)]
        cancelled = jobs.submit(cache, third.study, "", ("--until", UNTIL), command)
        jobs.cancel(cache, cancelled.id)
        # their processes are gone with all that watched them
        for job in submitted:
            dead = JobState(state="running", pid=2**22 - 1, process_started=1.0, started=1.0)
            write_state(job.folder, dead)
        jobs.reconcile(cache)
    assert [jobs.get(cache, job.id).killed for job in submitted] == [True, True]
    assert states(cache, sweep) == ["interrupted", "interrupted", "cancelled"]
    assert run(cache, sweep) == [("done", "")] * 3 and len(jobs.jobs(cache)) == 6


def test_every_study_leaves_a_run_though_another_makes_the_same_results(cache):
    # nothing as far as the drift depends on a threshold
    base = a_sweep(0).study
    sweep = Sweep("lines", base, {"reliability.drift_quantile": (0.8, 0.85)}, until=UNTIL)
    behave(cache, {"0": "hold"})

    def watch(_):
        if sum(job.state == "running" for job in jobs.jobs(cache)) == 2:
            (cache / "go").touch()

    assert run(cache, sweep, watch=watch) == [("done", "")] * 2
    assert len(dict(runs.read_all(Store(cache)))) == 2


def events(cache, job_id):
    lines = (cache / "jobs" / job_id / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def started_counts(cache):
    """Return in how many jobs computing each result was started, by the result's path below the cache."""
    counts = Counter()
    for job in jobs.jobs(cache):
        stages = stages_by_name(opened(jobs.study_of(cache, job.id), Store(cache)).graph)
        # a reused result is reported once, and one that another run computes is waited for
        started = [
            event["stage"]
            for event in events(cache, job.id)
            if not event["message"].startswith(("reused", "waiting for "))
        ]
        counts.update(f"{stages[name].kind}/{stages[name].key}" for name in {*started} & {*stages})
    return counts


@pytest.fixture
def tiny(tmp_path):
    """A sweep file over the model of the tests: three thresholds of one study."""
    study = tiny_study.made(tmp_path, methods=["dense", "gprune"])
    file = tmp_path / "lines.json"
    space = {"reliability.drift_quantile": [0.5, 0.7, 0.9]}
    file.write_text(json.dumps({"study": study, "space": space, "until": "masks"}))
    return file


@pytest.mark.slow
@pytest.mark.long
def test_a_sweep_runs_for_real_and_computes_what_is_shared_once(cache, tiny, capsys, monkeypatch):
    words = ["sweep", str(tiny), "--cache", str(cache)]
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "missing" in said.out and "drift quantile 0.7" in said.out
    states, stages = said.err.splitlines()
    expected_counts, distinct, missing = (int(word) for word in stages.replace(",", "").split() if word.isdecimal())
    assert states == "3 studies: 3 missing" and expected_counts > distinct == missing
    # what they all begin with is being computed by somebody else
    sweep, store = from_file(tiny), Store(cache)
    shared = statistics(opened(sweep.variations()[0].study, store).graph, "primary")
    waited: list[str] = []

    with contextlib.ExitStack() as locks:
        locks.enter_context(store.lock(shared.kind, shared.key))

        def watch(status):
            statuses = study_statuses(sweep.variations(), store, sweep.until)
            if not waited and sum("waiting for another run" in entry.detail for entry in statuses) == 2:
                waited.append(status.stage)
                locks.close()

        sweeps.run(sweep.variations(), store, sweep.until, watch=watch)
    assert waited == [f"{shared.name} waiting for another run that computes the same result"]
    counts = started_counts(cache)
    assert len(counts) == distinct and set(counts.values()) == {1}
    assert main([*words, "--json"]) == 0 and len(jobs.jobs(cache)) == 3
    printed = json.loads(capsys.readouterr().out)
    assert printed["counts"] == {"done": 3}
    assert [entry["settings"] for entry in printed["studies"]] == [
        {"reliability.drift_quantile": value} for value in (0.5, 0.7, 0.9)
    ]
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("3 studies: 3 done\n") and said.err.endswith(" 0 missing\n")
    first = printed["studies"][0]
    assert said.out.splitlines()[0].split() == ["done", "drift", "quantile", "0.5", first["run"]]
    assert any(event["message"].startswith("waiting") for event in events(cache, first["job"]))
