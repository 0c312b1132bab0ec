"""`run --model-gpus 2` on a machine without GPUs: two processes on its CPU, and what one says, two say."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import tiny_study
from strongest import faults, recorded
from threads_of_ranks import together
from waiting import limit, wait_for

from gprune import pipeline
from gprune.__main__ import EXIT_ERROR, EXIT_STOPPED, main
from gprune.cli import distributed as ranks
from gprune.models.distributed.launch import launch
from gprune.models.loading import load
from gprune.pipeline import Listener, runs, stages
from gprune.pipeline.stages import distributed
from gprune.pruning.calibration import collect_strongest
from gprune.pruning.repair.fitting import fit
from gprune.records import PruningMasks, Tokens
from gprune.store import Store, states
from gprune.store.resumption import VARIABLE
from gprune.study import from_dict, run_name
from gprune.study.model_gpus import require_possible
from gprune.system.errors import SettingsError

METHODS = ["dense", "gprune", "wanda_sp", "flap"]


def silent(stage, done, total, message):
    """Hears nothing."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model-gpus")
    found = tiny_study.made(folder)
    return found | {"methods": METHODS, "device": "cpu", "sparsity": {"epochs": 2, "batch": 8}}


class Command:
    """A command in a process of its own, with all that it has started."""

    def __init__(self, folder, settings, *words, count=2):
        self.cache, self.log = folder / "cache", folder / "log.txt"
        study = folder / "study.json"
        study.write_text(json.dumps(settings))
        command = [sys.executable, "-m", "gprune", "run", str(study), "--model-gpus", str(count), *words]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--cache", str(self.cache)],
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {VARIABLE: "0", "OMP_NUM_THREADS": "1"},
            )
        self.family: list[psutil.Process] = []

    def said(self):
        return self.log.read_text()

    def learns(self):
        """Waits until a state was saved; gives the processes that compute, rank 0 first."""
        wait_for(self._saved, 90)
        self.family = psutil.Process(self.process.pid).children(recursive=True)
        ranked = {one.environ().get("RANK"): one for one in self.family}
        return [ranked["0"], ranked["1"]]

    def _saved(self):
        assert self.process.poll() is None, self.said()
        return bool(list((self.cache / "learning").glob(f"*{states.SUFFIX}")))

    def end(self):
        """Its exit code; nothing of it is left."""
        code = self.process.wait(limit(60))
        _, left = psutil.wait_procs(self.family, timeout=limit(10))
        assert not left
        return code


def results_of(settings, cache):
    return pipeline.opened(from_dict(settings), Store(cache))


def require_close(found, expected, tolerance):
    for name in expected.__dataclass_fields__:
        value, wanted = getattr(found, name), getattr(expected, name)
        if isinstance(wanted, np.ndarray) and wanted.dtype.kind == "f" and wanted.size:
            scale = max(float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)), 1e-30)
            np.testing.assert_allclose(value / scale, wanted / scale, rtol=tolerance, atol=tolerance, err_msg=name)
        elif isinstance(wanted, np.ndarray):
            np.testing.assert_array_equal(value, wanted, err_msg=name)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.long
def test_two_processes_find_what_one_finds(tmp_path, settings):
    """Layers wait in their files for the statistics, and lie in shards to be learned on.

    What takes the whole model on one GPU is left out, and everything else is there.
    """
    more = {"methods": [*METHODS, "llm_pruner"], "baselines": {"taylor_samples": 4, "taylor_length": 16}}
    more |= {"evaluation": settings["evaluation"] | {"speed": "cpu"}, "offload": True}
    command = Command(tmp_path, settings | more, "--json")
    pipeline.run(from_dict(settings), Store(tmp_path / "alone"), silent, "perplexity")
    written, _ = command.process.communicate(timeout=limit(120))
    assert command.end() == 0, command.said()
    expected, found = results_of(settings, tmp_path / "alone"), results_of(settings, command.cache)
    decoder = load(settings["model"], "cpu", "float32")
    for role in ("primary", "auxiliary"):
        require_close(found.get(stages.statistics, role), expected.get(stages.statistics, role), 1e-6)
        assert found.details(stages.statistics(found.graph, role))["processes"] == 2
        require_close(found.get(stages.scores, role), expected.get(stages.scores, role), 1e-6)
        activations = recorded(decoder, found.get(stages.tokens, role).ids, 4)
        assert not faults(found.get(stages.positions, role), activations, 1e-6)
    for method in ("wanda_sp", "flap"):
        one, other = (results.get(stages.masks, method) for results in (found, expected))
        np.testing.assert_array_equal(one.ffn, other.ffn)
        np.testing.assert_array_equal(one.heads, other.heads)
    first, second = (one.get(stages.learning) for one in (found, expected))
    np.testing.assert_allclose(first.steps[:10], second.steps[:10], rtol=1e-3, atol=1e-3)
    assert found.details(stages.learning(found.graph))["processes"] == 2
    assert "processes" not in found.details(stages.norms(found.graph))
    for method in METHODS:
        for text in settings["evaluation"]["texts"]:
            one, other = (float(r.get(stages.perplexity, method, text).perplexity) for r in (found, expected))
            assert one == pytest.approx(other, rel=0.005), method
    study = from_dict(settings | more)
    record = runs.read(found.store, run_name(study))
    assert record is not None
    left_out = {name for name in record["unavailable"] if name.startswith(("masks", "speed"))}
    assert left_out == {"masks_llm_pruner", "speed"}
    assert (Path(json.loads(written)["checkpoint"]) / "config.json").exists()
    assert (record["state"], record["provenance"]["processes"]) == ("done", 2)
    assert json.loads(written)["perplexity"].keys() == set(METHODS)


def test_positions_alone_are_shared_out_too(settings):
    """As for runs whose statistics are from before positions were kept."""
    study = from_dict(settings)
    ids = np.random.default_rng(0).integers(3, 64, (9, 8)).astype(np.int32)
    tokens = Tokens("a text", "fingerprint", ids, 9)

    # transformers reads one model at a time
    models = [load(study.model, "cpu", "float32") for _ in range(3)]

    def run(one):
        decoder, count = models[one.rank], 3
        if one.rank:
            held = ranks._Held(one)
            held._form, held._decoder = "whole", decoder
            for _ in range(2):
                order = one.awaited()
                assert order is not None
                ranks._take_part(one, held, order)
            return None
        known = distributed.Processes(one, study, "float32", lambda: None)
        shared = known.called(distributed.POSITIONS, tokens, study.calibration, count)
        found = collect_strongest(decoder, tokens, study.calibration, count, ranks=shared)
        one.order(distributed.LET_GO, {}, {})
        return found, recorded(decoder, ids, 4)

    (found, activations), *others = together(3, run)
    assert others == [None, None]
    assert not faults(found, activations, 1e-5)


def test_a_repair_is_shared_out_too(settings):
    study = from_dict(settings | {"repair": {"kind": "least_squares_bias"}})
    numbers = np.random.default_rng(0)
    texts = [
        Tokens(name, name, numbers.integers(3, 64, (size, 8)).astype(np.int32), size)
        for name, size in (("one", 9), ("another", 4))
    ]
    models = [load(study.model, "cpu", "float32") for _ in range(3)]
    shape, batch = models[0].shape, study.calibration.batch
    ffn, heads = (numbers.random((shape.layers, units)) < 0.6 for units in (shape.neurons, shape.kv_heads))
    ffn[:, 0], heads[:, 0] = True, True
    masks = PruningMasks("test", ffn, heads, 0.5, 0.5)

    def run(one):
        if one.rank:
            held = ranks._Held(one)
            held._form, held._decoder = "whole", models[one.rank]
            order = one.awaited()
            assert order is not None and order.name == distributed.REPAIR
            return ranks._take_part(one, held, order)
        shared = distributed.Processes(one, study, "float32", lambda: None).repairing(masks, texts, study.repair)
        return fit(models[0], masks, texts, study.repair, batch, ranks=shared)

    found, *others = together(3, run)
    alone = fit(models[0], masks, texts, study.repair, batch)
    assert others == [None, None]
    np.testing.assert_allclose(found.numbers, alone.numbers, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.biases, alone.biases, rtol=1e-3, atol=1e-4)


LONG = {"sparsity": {"epochs": 4000, "batch": 8}, "methods": ["dense", "gprune"]}


@pytest.mark.process
@pytest.mark.long
def test_a_signal_interrupts_them_and_one_process_goes_on(tmp_path, settings):
    """And a process that is killed ends the others, with one sentence."""
    command = Command(tmp_path, settings | LONG, "--until", "masks")
    command.learns()
    command.process.send_signal(signal.SIGTERM)
    assert command.end() == EXIT_STOPPED, command.said()
    assert "interrupted: run it again" in command.said() and "Traceback" not in command.said()
    study = from_dict(settings | LONG)
    assert read_state(command.cache, study) == "interrupted"
    told = goes_on_alone(study, command.cache)
    assert any("goes on at step" in words for words in told)
    assert any("begun by 2 processes and goes on with 1 process" in words for words in told)
    killed = Command(tmp_path, settings | LONG, "--until", "masks")
    wait_for(lambda: "it was begun by 1 process and" in killed.said() or killed.process.poll(), 90)
    _, second = killed.learns()
    second.kill()
    assert killed.end() == EXIT_ERROR
    *_, before, last = killed.said().strip().splitlines()
    assert last.startswith("error: process 2 of the 2 that compute this model together has ended"), last
    assert "error" not in before and "Traceback" not in killed.said()
    assert read_state(command.cache, study) == "failed"


def read_state(cache, study):
    record = runs.read(Store(cache), run_name(study))
    assert record is not None
    return str(record["state"])


class EnoughError(Exception):
    """Ends a learning of which enough was seen."""


def goes_on_alone(study, cache):
    """What a single process says that goes on, until it has made three steps."""
    told: list[str] = []

    def heard(stage, done, total, message):
        if stage == "learning":
            told.append(str(message))
            if sum("cross-entropy" in one for one in told) == 3:
                raise EnoughError

    listener: Listener = heard
    with pytest.raises(EnoughError):
        pipeline.run(study, Store(cache), listener, "masks")
    return told


@pytest.mark.parametrize(
    ("count", "changes", "words"),
    [
        (0, {}, "--model-gpus must be 1 to 64"),
        (-2, {}, "--model-gpus must be 1 to 64"),
        (65, {}, "--model-gpus must be 1 to 64"),
        (2, {"device": "cuda:1"}, "device must be auto, cpu or cuda with --model-gpus"),
        (2, {"device": "cuda"}, "device must be auto or cpu on a machine without GPUs"),
    ],
)
def test_what_cannot_be_is_refused(
    settings,
    count,
    changes,
    words,
    monkeypatch,
):
    monkeypatch.setattr(ranks.machine, "has_gpu", lambda: False)
    with pytest.raises(SettingsError, match=words):
        require_possible(count, from_dict(settings | changes), None)


def test_more_gpus_than_there_are_are_refused(settings, monkeypatch):
    monkeypatch.setattr(ranks.machine, "has_gpu", lambda: True)
    monkeypatch.setattr(ranks.machine, "cards", lambda: ("GPU", "GPU"))
    study = from_dict(settings | {"device": "auto"})
    require_possible(2, study, None)
    with pytest.raises(SettingsError, match="at most 2, the GPUs that are here"):
        require_possible(3, study, None)
    # on a node of a cluster there may be more
    require_possible(3, study, None, here=False)


def test_a_torch_that_starts_no_processes_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.distributed.is_available", lambda: False)
    with pytest.raises(SettingsError, match="needs torch.distributed, which this build of torch lacks"):
        launch(2, [], tmp_path)


def test_seeds_are_refused(settings, tmp_path, capsys):
    study = tmp_path / "study.json"
    study.write_text(json.dumps(settings))
    assert main(["run", str(study), "--model-gpus", "2", "--seeds", "1", "2"]) == EXIT_ERROR
    assert "--model-gpus must be left out with --seeds" in capsys.readouterr().err
