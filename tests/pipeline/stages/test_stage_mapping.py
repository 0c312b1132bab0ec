"""The neurons of a layer as points, over a run of a small model: recomputed from its files and statistics."""

from pathlib import Path

import numpy as np
import pytest
import tiny_study
from safetensors.numpy import load_file
from tiny_study import silent

from gprune import pipeline
from gprune.__main__ import main
from gprune.pipeline import computing, stages
from gprune.pipeline.stages import Graph, Results
from gprune.pruning import neuron_embedding
from gprune.pruning.neuron_embedding import BEHAVIOUR, PARAMETERS
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.system.errors import ModelError, StoreError

pytestmark = pytest.mark.slow
NAMES = ("gate", "up", "down")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("map")
    values = tiny_study.made(folder, shape={"neurons": 40}, methods=["dense"])
    study, store = from_dict(values), Store(folder / "cache")
    pipeline.run(study, store, silent, "drift")
    return study, store


@pytest.fixture
def results(run):
    study, store = run
    return pipeline.opened(study, store)


def weights(folder, layer):
    """(neurons, 3 * hidden) unit rows from the file, by numpy alone."""
    stored = load_file(Path(folder) / "model.safetensors")
    gate, up, down = (stored[f"model.layers.{layer}.mlp.{name}_proj.weight"].astype(float) for name in NAMES)
    rows = np.concatenate([gate, up, down.T], axis=1)
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


def decomposed(rows, limit=50):
    """The rows in their principal components, up to signs, and the shares of the variance."""
    left, singular, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    count = min(limit, len(rows) - 1)
    return np.abs(left * singular)[:, :count], (singular**2 / (singular**2).sum())[:count]


def test_components_of_the_parameters_are_those_of_the_files(run, results):
    result = computing.compute_result(results, stages.components(results.graph, 1), silent)
    places, shares = decomposed(weights(run[0].model, 1))
    assert result.layer == 1 and result.places.shape == (40, 39)
    assert np.allclose(np.abs(result.places), places, atol=2e-4) and np.allclose(result.shares, shares, atol=1e-5)


@pytest.mark.parametrize("basis", [BEHAVIOUR, PARAMETERS])
@pytest.mark.long
def test_umap_is_given_the_components_and_repeats_itself(run, results, basis, monkeypatch):
    supplied = []
    layout = neuron_embedding.umap_layout
    watched = lambda *arguments: supplied.append(arguments) or layout(*arguments)  # noqa: E731
    monkeypatch.setattr(neuron_embedding, "umap_layout", watched)
    texts = stages.mapped_texts(results.graph, results.holds)
    assert texts == ("primary", "auxiliary")
    stage = stages.neuron_map(results.graph, 1, basis, texts)
    result = computing.compute_result(results, stage, silent)
    (points, seed), statistics = supplied[0], [results.get(stages.statistics, text) for text in texts]
    rows = weights(run[0].model, 1)
    if basis == BEHAVIOUR:
        columns = []
        for statistic in statistics:
            spread = np.sqrt(statistic.ffn_moment[:, 1] / statistic.shard_tokens[:, None])
            columns += [*statistic.ffn_mean[:, 1], *spread]
        rows = np.array([(column - column.mean()) / column.std() for column in columns]).T
    expected, _ = decomposed(rows)
    assert np.allclose(np.abs(points), expected[:, : points.shape[1]], atol=1e-3) and seed == 0
    assert result.basis == basis and result.places.shape == (40, 2) and 0 < result.kept.mean() <= 1
    # a second one is read, and one that is made anew is the same
    assert np.array_equal(computing.compute_result(results, stage, silent).places, result.places) and len(supplied) == 1
    results.store.discard(stage.kind, stage.key)
    assert np.array_equal(computing.compute_result(results, stage, silent).places, result.places) and len(supplied) == 2


def test_a_key_tells_layer_basis_texts_and_seed_and_no_setting_of_pruning(results):
    graph, study = results.graph, results.graph.study
    both = ("primary", "auxiliary")

    def key(layer=0, basis=BEHAVIOUR, texts=both, **changes):
        changed = Graph(study.with_settings(changes), graph.inputs)
        return stages.neuron_map(changed, layer, basis, texts).key

    keys = {key(), key(layer=1), key(basis=PARAMETERS), key(texts=both[:1]), key(seed=1)}
    assert len(keys) == 5 and key(basis=PARAMETERS, texts=()) == key(basis=PARAMETERS)
    assert key(retention=0.7) == key() and key(**{"modularization.steps": 9}) == key()


def test_a_model_that_is_another_one_now_is_a_sentence(run, results, tmp_path):
    study, store = run
    expected = stages.components(results.graph, 0)
    (tmp_path / "texts").mkdir()
    other = tiny_study.write_model(tmp_path / "other", tiny_study.write_texts(tmp_path / "texts"), neurons=32)
    for model, words in ((other, "has changed since the run"), (str(tmp_path / "gone"), "no model folder")):
        changed = Results(store, Graph(study.with_settings({"model": model}), results.graph.inputs))
        with pytest.raises(ModelError, match=words):
            computing.compute_result(changed, stages.components(changed.graph, 0), silent)
    assert not results.holds(expected)


def test_what_a_run_has_not_measured_is_a_sentence(run, tmp_path, results):
    empty = Results(Store(tmp_path), results.graph)
    with pytest.raises(StoreError, match="the result “activation statistics on A” is missing from the run"):
        computing.compute_result(empty, stages.neuron_map(results.graph, 0, BEHAVIOUR, ("primary",)), silent)


@pytest.mark.long
def test_the_command_keeps_the_map(run, results, capsys):
    study, store = run
    name = run_name(study)
    options = ["map", name, "--cache", str(store.root)]
    assert main([*options, "--layer", "0"]) == 0
    assert "UMAP of layer 0 by behaviour on A, B: 40 neurons, seed 0" in capsys.readouterr().out
    assert results.holds(stages.neuron_map(results.graph, 0, BEHAVIOUR, ("primary", "auxiliary")))
    for layer in ("2", "-1"):
        assert main([*options, "--layer", layer]) == 2
        assert f"error: --layer must be 0 to 1 (got {layer})" in capsys.readouterr().err
    assert main(["map", "no-such-run", "--layer", "0", "--cache", str(store.root)]) == 2
