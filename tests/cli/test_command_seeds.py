"""`run --seeds`: one run a seed, shared work, and how far the results lie apart."""

import json
import math

import numpy as np
import pytest
import tiny_study

from gprune.__main__ import main
from gprune.analysis.seeds import spread
from gprune.pipeline import runs
from gprune.store import Store

SEEDS = ("3", "0", "1")


def test_spread_is_that_of_the_numbers_and_leaves_out_what_no_seed_has():
    results = [
        {"perplexity": {"dense": {"a": 2.0}, "fang": {"a": 7.0}}, "accuracy": {"dense": {}}, "seconds": {}},
        {"perplexity": {"dense": {"a": 4.0}}, "accuracy": {"dense": {"t": {"acc": 0.5, "samples": 9}}}},
        {"perplexity": {"dense": {"a": 9.0}}, "accuracy": {"dense": {"t": {"acc": 0.7, "acc_norm": None}}}},
    ]
    found = spread(results)
    assert found["perplexity"]["dense"]["a"]["mean"] == 5.0
    assert found["perplexity"]["dense"]["a"]["deviation"] == pytest.approx(math.sqrt(26 / 3))
    assert found["perplexity"]["fang"]["a"] == {"mean": 7.0, "deviation": 0.0, "seeds": 1}
    only = found["accuracy"]["dense"]["t"]
    assert list(only) == ["acc"] and only["acc"]["mean"] == pytest.approx(0.6) and only["acc"]["seeds"] == 2
    infinite = spread([{"perplexity": {"flap": {"a": math.inf}}}, {"perplexity": {"flap": {"a": 3.0}}}])
    assert infinite["perplexity"]["flap"]["a"]["mean"] == math.inf
    assert set(found) == {"perplexity", "accuracy"}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    texts = tiny_study.write_texts(folder / "texts")
    model = tiny_study.write_model(folder / "model", texts)
    study = folder / "study.json"
    study.write_text(json.dumps(tiny_study.settings(model, texts, methods=["dense", "gprune", "flap"])))
    return folder, str(study), texts


def call(capsys, folder, *words):
    code = main(["run", *words, "--cache", str(folder / "cache")])
    return code, capsys.readouterr()


@pytest.mark.slow
def test_every_seed_is_a_run_and_what_no_seed_changes_is_made_once(capsys, workshop):
    folder, study, texts = workshop
    code, said = call(capsys, folder, study, "--until", "perplexity", "--json", "--seeds", *SEEDS)
    assert code == 0 and said.out.count("\n") == 1
    whole = json.loads(said.out)
    assert whole["seeds"] == [3, 0, 1]
    assert [one["settings"]["seed"] for one in whole["runs"]] == [3, 0, 1]
    assert len(runs.names(Store(folder / "cache"))) == 3
    first, *others = (set(one["reused"]) for one in whole["runs"])
    assert not first
    for reused in others:
        assert {"shape", "size", "norms", "perplexity.dense.0"} <= reused
        assert not {"tokens_primary", "learning"} & reused
    for method in ("dense", "gprune", "flap"):
        values = [one["perplexity"][method][texts[2]] for one in whole["runs"]]
        told = whole["spread"]["perplexity"][method][texts[2]]
        assert told["mean"] == pytest.approx(np.mean(values)) and told["seeds"] == 3
        assert told["deviation"] == pytest.approx(np.std(values))
    assert whole["spread"]["perplexity"]["dense"][texts[2]]["deviation"] == 0.0
    assert whole["spread"]["perplexity"]["gprune"][texts[2]]["deviation"] > 0
    code, said = call(capsys, folder, study, "--until", "perplexity", "--seeds", *SEEDS)
    assert code == 0 and "mean ± s.d. over seeds 3 0 1" in " ".join(said.out.split())
    assert said.out.count("0 stages computed") == 3 and "± 0.00" in said.out


@pytest.mark.parametrize(
    ("seeds", "words"), [(("1", "1"), "--seeds must be seeds that differ"), (("-1",), "seed must")]
)
def test_seeds_that_cannot_be_run_are_one_sentence(capsys, workshop, seeds, words):
    folder, study, _ = workshop
    code, said = call(capsys, folder, study, "--seeds", *seeds)
    assert code == 2 and words in said.err and said.err.count("\n") == 1
