"""Damage is found wherever it is, never handed out, named, and made good by the next run: in a real run."""

import json
import random
import shutil
from collections import Counter

import damage
import numpy as np
import pytest
import tiny_study

from gprune import pipeline
from gprune.models.export import checkpoint
from gprune.pipeline.stages import KINDS
from gprune.store import DAMAGED, Store
from gprune.study import from_dict
from gprune.system.errors import CheckpointError, DamagedError, StoreError

pytestmark = pytest.mark.slow
COUNT = 40


def run_logged(study, store):
    """Run a study, and return stage and message of every report."""
    reports = []
    pipeline.run(study, store, lambda stage, _done, _total, message: reports.append((stage, message)))
    return reports


def content(store):
    """Return the content of all results of a cache, by stage and key."""
    results = {}
    for stage, key in damage.results(store):
        kind = KINDS[stage].record
        if kind is None:
            folder = store.check(stage, key)
            paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "meta.json"]
            results[stage, key] = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
        else:
            record = store.get(stage, key, kind)
            results[stage, key] = {name: getattr(record, name) for name in record.__slots__}
    return results


def same(first, second):
    assert first.keys() == second.keys()
    for location, values in first.items():
        for name, value in values.items():
            np.testing.assert_equal(second[location][name], value, f"{location} {name}")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A finished run: its study, its cache, and what its results hold."""
    folder = tmp_path_factory.mktemp("whole")
    rows = [{"question": "Two and two make", "choices": [" four", " five"], "answer": 0}] * 3
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = tiny_study.made(folder, third=True, methods=["dense", "gprune", "flap"])
    values["evaluation"]["tasks"] = [str(folder / "own.jsonl")]
    study = from_dict(values)
    store = Store(folder / "cache")
    run_logged(study, store)
    return study, store, content(store)


@pytest.fixture
def spare(finished_run, tmp_path):
    """A copy of the run to be damaged."""
    study, store, _ = finished_run
    return study, Store(shutil.copytree(store.root, tmp_path / "cache"))


def test_every_flipped_bit_is_found_and_none_is_handed_out(finished_run, spare):
    _, store = spare
    result = Counter()
    for path, bit in damage.random_flips(store, COUNT, seed=1):
        stage, key = path.relative_to(store.root).parts[:2]
        kind = KINDS[stage].record
        damage.fresh_process()
        damage.flip_bit(path, bit)
        damage.wait_a_tick()
        with pytest.raises(DamagedError, match=f"{stage}/{key} is damaged .*: run the study again"):
            store.get(stage, key, kind) if kind else store.check(stage, key)
        damage.flip_bit(path, bit)
        assert store.check(stage, key, kind)
        result[path.suffix] += 1
    assert result.total() == COUNT and result[".npy"] >= 12 and result[".json"] >= 3
    same(finished_run[2], content(store))


def test_a_run_makes_good_what_flipped_bits_have_spoilt(finished_run, spare):
    study, store = spare
    flips = damage.random_flips(store, COUNT, seed=2)
    for path, bit in flips:
        damage.flip_bit(path, bit)
    damage.fresh_process()
    repaired = [stage for stage, message in run_logged(study, store) if "damaged" in message]
    damaged = {path.relative_to(store.root).parts[:2] for path, _ in dict(flips).items()}
    assert len(list((store.root / DAMAGED).iterdir())) == len(repaired) == len(damaged)
    same(finished_run[2], content(store))
    assert {message for _, message in run_logged(study, store)} == {"reused"}


def test_a_model_is_checked_where_it_is_loaded_or_offered(spare):
    _, store = spare
    (model,) = store.root.glob("checkpoint/*/model")
    assert checkpoint.load_verified(model)
    for name in ("model.safetensors", "pruning.json", "tokenizer.json"):
        path = model / name
        # the last bit of a number hardly changes what the model answers
        damage.flip_bit(path, 8 * (path.stat().st_size // 2))
        with pytest.raises(CheckpointError, match=f"{name} does not hold what was written: run the study again"):
            checkpoint.load_verified(model)
        damage.flip_bit(path, 8 * (path.stat().st_size // 2))
    shutil.copytree(model, store.root / "elsewhere")
    damage.flip_bit(model / "model.safetensors", 4000)
    assert checkpoint.load_verified(store.root / "elsewhere")


@pytest.mark.parametrize("kind", damage.MANIFESTS)
def test_a_damaged_result_is_never_read(spare, kind):
    _, store = spare
    chosen = random.Random(kind)
    for stage, key in damage.results(store)[::4]:
        record = KINDS[stage].record
        damage.MANIFESTS[kind](store.folder(stage, key), chosen)
        with pytest.raises(StoreError, match="no complete result"):
            store.get(stage, key, record) if record else store.check(stage, key)
