"""A tiny study of every family by methods of every kind: the cut model scores what the silenced one scores."""

from pathlib import Path

import numpy as np
import pytest
import tiny_study
from family_switches import SIZES, SWITCHES
from tiny_family import tiny_decoder

from gprune import pipeline
from gprune.evaluation.perplexity import perplexity
from gprune.models.families import FAMILIES
from gprune.models.loading import load
from gprune.pipeline import stages
from gprune.pruning.surgery import Silenced
from gprune.store import Store
from gprune.study import EvaluationSettings, from_dict

pytestmark = pytest.mark.long

METHODS = ("dense", "gprune", "gates", "llm_pruner", "wanda_sp", "flap", "flap_no_bias", "fang")
METHODS += ("fang_pooled", "osscar", "slimllm", "recommended")
"""every way in which a method looks at a model or changes it; the others combine what these measure"""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_study_of_methods_of_every_kind_passes(family, tmp_path):
    texts = tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "model", texts)
    sizes = SIZES | {"neurons": 48, "vocabulary": 320}
    tiny_decoder(family, **sizes, **SWITCHES[family][0]).model.save_pretrained(model)
    values = tiny_study.settings(model, texts, methods=METHODS, substitute=texts[2], device="cpu")
    values["calibration"] = {"samples": 8, "length": 12, "batch": 8}
    values["evaluation"] |= {"texts": [texts[2]]}
    values["baselines"] = {"taylor_samples": 2, "taylor_length": 12}
    if FAMILIES[family].normalised:
        values["repair"] = {"target": "dense_inputs"}
    study, store = from_dict(values), Store(tmp_path / "cache")
    result = pipeline.run(study, store, tiny_study.silent)
    assert not result["unavailable"] and result["perplexity"].keys() == set(METHODS)
    assert all(np.isfinite(value) for scores in result["perplexity"].values() for value in scores.values())
    retentions = [share for method, share in result["retention"].items() if method != "dense"]
    assert retentions == pytest.approx([0.5] * len(retentions), abs=0.06)
    results, decoder = pipeline.opened(study, store), load(model, "cpu")
    tokens = np.array(decoder.tokenizer(Path(texts[2]).read_text(), add_special_tokens=False).input_ids)
    settings = EvaluationSettings(preset="16", windows=6, batch=study.evaluation.batch)
    with Silenced(decoder, results.get(stages.masks, "flap")).applied():
        silenced = perplexity(decoder.model, tokens, texts[2], settings)
    cut = results.record(stages.perplexity(results.graph, "flap_no_bias", texts[2]))
    assert cut.perplexity == pytest.approx(silenced.perplexity, rel=1e-5)
