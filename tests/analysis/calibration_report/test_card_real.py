"""The law of sampling on a trained model and a real text: few sequences tell what many do."""

import numpy as np
import pytest

from gprune.analysis import resampling
from gprune.data import texts
from gprune.models.loading import load
from gprune.pruning.calibration import collect
from gprune.pruning.scoring import neuron_scorer
from gprune.study import CalibrationSettings

pytestmark = pytest.mark.slow


def samples(shared, decoder, sequences):
    settings = CalibrationSettings(samples=sequences, batch=32)
    name = str(shared / "data" / "wikitext-2" / "valid.txt")
    tokens = texts.draw(name, decoder.tokenizer, sequences, settings.length, 0)
    statistics = collect(decoder, tokens, settings)
    score = neuron_scorer("flap", statistics, decoder.weight_norms())
    half = np.full(decoder.shape.layers, decoder.shape.neurons // 2)
    return resampling.resampled(score, statistics.shard_samples, half)


@pytest.mark.long
def test_samples_of_at_most_32_sequences_tell_what_samples_of_128_do(shared):
    decoder = load(str(shared / "models" / "textllama-6m"), "cpu", "float32")
    few, many = (samples(shared, decoder, sequences) for sequences in (64, 256))
    assert few.sequences.max() == 32 and many.sequences.max() == 128
    for name in ("drift", "changed"):
        law = resampling.law(few.sequences, getattr(few, name))
        measured = getattr(many, name).mean(axis=1)
        foretold = [law.at(size) for size in many.sequences]
        np.testing.assert_allclose(foretold, measured, rtol=0.15, err_msg=name)
