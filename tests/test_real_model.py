"""The whole path on a trained model and real texts: less retention is worse, and pruned is worse than dense."""

import pytest

from gprune import pipeline
from gprune.store import Store
from gprune.study import from_dict


@pytest.mark.long
def test_less_is_worse_and_pruned_is_worse_than_dense(shared, tmp_path):
    data = shared / "data"
    texts = [data / "wikitext-2" / "test.txt", data / "c4" / "c4.jsonl"]
    values = {
        "model": str(shared / "models" / "stories260K"),
        "primary": str(data / "wikitext-2" / "valid.txt"),
        "auxiliary": str(data / "ptb" / "ptb.valid.txt"),
        "methods": ["dense", "gprune", "flap", "wanda_sp"],
        "calibration": {"samples": 32},
        "modularization": {"steps": 10, "restarts": 1, "candidates": [16]},
        "sparsity": {"epochs": 1},
        "evaluation": {"texts": [str(text) for text in texts], "windows": 8},
    }
    mild, harsh = (
        pipeline.run(from_dict({**values, "retention": retention}), Store(tmp_path), lambda *_: None)["perplexity"]
        for retention in (0.7, 0.5)
    )
    for text, dense in harsh["dense"].items():
        for method in ("gprune", "flap", "wanda_sp"):
            assert dense < mild[method][text] < harsh[method][text]
