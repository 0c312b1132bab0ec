"""Contexts of several seeds: the model runs once, and only the clustering is drawn anew."""

import numpy as np

from gprune.models.tiny import tiny_decoder
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, Inputs, RunContext
from gprune.records import Tokens
from gprune.study.demo import demo_study


def test_contexts_of_all_seeds_share_inputs_and_components(tmp_path):
    study = demo_study().with_settings({"contexts.count": 3, "contexts.dimensions": 4, "contexts.tokens": 60})
    work = RunContext(study, Inputs.unknown(study), tmp_path)
    work.__dict__["decoder"] = decoder = tiny_decoder()
    ids = np.random.default_rng(0).integers(0, 64, (20, 6)).astype(np.int32)
    first, second = (Tokens(text, text, rows, 10) for text, rows in (("a", ids[:10]), ("b", ids[10:])))
    graph = Graph(study)
    made = [
        stages.contexts(graph, other_seed=seed).make(work, tokens=text)
        for text, seed in ((first, False), (first, True), (second, False))
    ]
    assert decoder.forward_tokens == 2 * 60
    for one, other, same in ((made[0], made[1], True), (made[0], made[2], False)):
        assert np.array_equal(one.components, other.components) == same
        assert np.array_equal(one.mean, other.mean) == same
        assert not np.array_equal(one.centroids, other.centroids)
