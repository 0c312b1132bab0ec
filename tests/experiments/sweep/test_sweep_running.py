"""The studies of a sweep become jobs; what they share is computed once, and what failed stays."""

import contextlib
import json

import pytest
import tiny_study
from sweep.computed import begun, events
from sweep.fake_sweep import UNTIL, a_sweep, command
from waiting import wait_for

from gprune import jobs
from gprune.__main__ import main
from gprune.experiments.scheduler import CANCELLED
from gprune.experiments.sweep import running
from gprune.experiments.sweep.plan import Sweep, from_file
from gprune.experiments.sweep.running import standings
from gprune.jobs import local, queue
from gprune.jobs.state import JobState, write_state
from gprune.pipeline import opened, runs
from gprune.pipeline.stages import statistics
from gprune.store import Store


def behave(cache, **behaviours):
    (cache / "behaviour.json").write_text(json.dumps({k.strip("_"): v for k, v in behaviours.items()}))


def states(cache, sweep):
    return [one.state for one in standings(sweep.variations(), Store(cache), UNTIL)]


def run(cache, sweep, **how):
    found = running.run(sweep.variations(), Store(cache), UNTIL, build=command, **how)  # type: ignore[arg-type]
    return [(one.state, one.words) for one in found]


@pytest.mark.long
@pytest.mark.process
def test_a_failure_is_told_stays_and_is_tried_again_when_asked_for(cache):
    sweep = a_sweep(0, 1, 2, 3)
    assert states(cache, sweep) == ["missing"] * 4
    behave(cache, _1="fail")
    told: list[tuple[int, str]] = []
    found = run(cache, sweep, told=lambda entry, why: told.append((entry.study.seed, why)))
    why = "the text 'x' is empty: choose another"
    assert found == [("done", ""), ("failed", why), ("done", ""), ("done", "")]
    assert sorted(told) == [(0, ""), (1, why), (2, ""), (3, "")]
    names = list(dict(runs.every(Store(cache))))
    assert len(names) == 3 and all(name.startswith("seeds-seed-") for name in names)
    assert {job.label for job in jobs.jobs(cache)} == {f"seeds: seed {seed}" for seed in range(4)}
    # nothing is left to do, and what has failed is not tried unasked
    assert run(cache, sweep) == found and len(jobs.jobs(cache)) == 4
    behave(cache)
    assert run(cache, sweep, again=True) == [("done", "")] * 4 and len(jobs.jobs(cache)) == 5


@pytest.mark.process
def test_killed_and_cancelled_jobs_are_gone_on_with(cache, monkeypatch):
    sweep = a_sweep(0, 1, 2)
    first, second, third = sweep.variations()
    with monkeypatch.context() as patch:
        patch.setattr(local, "start_worker", lambda *_: None)
        made = [jobs.submit(cache, one.study, "", ("--until", UNTIL), command) for one in (first, second)]
        cancelled = jobs.submit(cache, third.study, "", ("--until", UNTIL), command)
        jobs.cancel(cache, cancelled.id)
        # their processes are gone with all that watched them
        for job in made:
            dead = JobState(state="running", pid=2**22 - 1, process_started=1.0, started=1.0)
            write_state(job.folder, dead)
        jobs.reconcile(cache)
    assert [jobs.get(cache, job.id).killed for job in made] == [True, True]
    assert states(cache, sweep) == ["interrupted", "interrupted", "cancelled"]
    assert run(cache, sweep) == [("done", "")] * 3 and len(jobs.jobs(cache)) == 6


@pytest.mark.process
def test_every_study_leaves_a_run_though_another_makes_the_same_results(cache):
    # nothing as far as the drift depends on a threshold
    base = a_sweep(0).study
    sweep = Sweep("lines", base, {"reliability.drift_quantile": (0.8, 0.85)}, until=UNTIL)
    behave(cache, _0="hold")

    def watch(_):
        if sum(job.state == "running" for job in jobs.jobs(cache)) == 2:
            (cache / "go").touch()

    assert run(cache, sweep, watch=watch) == [("done", "")] * 2
    assert len(dict(runs.every(Store(cache)))) == 2


@pytest.mark.long
@pytest.mark.process
def test_an_interrupt_cancels_the_jobs_and_the_next_start_goes_on(cache):
    sweep = a_sweep(0, 1, 2)
    behave(cache, _0="hold", _1="hold", _2="hold")

    def interrupt(_):
        if any(jobs.progress(cache, job.id).message == "holding" for job in jobs.jobs(cache)):
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run(cache, sweep, watch=interrupt)

    def ended():
        # a process that the signal met before it could listen has left its state as it was
        queue.reconcile(cache)
        return not any(job.active for job in jobs.jobs(cache))

    wait_for(ended)
    assert states(cache, sweep) == ["cancelled"] * 3
    (cache / "go").touch()
    assert run(cache, sweep) == [("done", "")] * 3
    assert CANCELLED not in str(standings(sweep.variations(), Store(cache), UNTIL))


@pytest.fixture
def tiny(tmp_path):
    """A sweep file over the model of the tests: three thresholds of one study."""
    texts = tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "model", texts)
    study = tiny_study.settings(model, texts, methods=["dense", "gprune"])
    file = tmp_path / "lines.json"
    space = {"reliability.drift_quantile": [0.5, 0.7, 0.9]}
    file.write_text(json.dumps({"study": study, "space": space, "until": "masks"}))
    return file


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.long
def test_a_sweep_runs_for_real_and_computes_what_is_shared_once(cache, tiny, capsys, monkeypatch):
    words = ["sweep", str(tiny), "--cache", str(cache)]
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "stages, " in said.out and "drift quantile 0.7" in said.out
    asked, distinct, missing = (
        int(word) for word in said.err.replace(",", "").split() if word.isdecimal() and word != "3"
    )
    assert "3 studies with" in said.err and asked > distinct == missing
    # what they all begin with is being computed by somebody else
    sweep, store = from_file(tiny), Store(cache)
    shared = statistics(opened(sweep.variations()[0].study, store).graph, "primary")
    waited: list[str] = []

    with contextlib.ExitStack() as held:
        held.enter_context(store.lock(shared.kind, shared.key))

        def watch(status):
            found = standings(sweep.variations(), store, sweep.until)
            if not waited and sum("waiting for another run" in one.words for one in found) == 2:
                waited.append(status.stage)
                held.close()

        running.run(sweep.variations(), store, sweep.until, watch=watch)
    assert waited == [f"{shared.name} waiting for another run that computes the same"]
    counts = begun(cache)
    assert len(counts) == distinct and set(counts.values()) == {1}
    assert main([*words, "--json"]) == 0 and len(jobs.jobs(cache)) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"done": 3}
    assert [one["settings"] for one in told["studies"]] == [
        {"reliability.drift_quantile": value} for value in (0.5, 0.7, 0.9)
    ]
    assert main([*words, "--status"]) == 0
    said = capsys.readouterr()
    assert said.err == "3 studies: 3 done\n"
    first = told["studies"][0]
    assert said.out.splitlines()[0].split() == ["done", "drift", "quantile", "0.5", first["run"]]
    assert any(event["message"].startswith("waiting") for event in events(cache, first["job"]))
