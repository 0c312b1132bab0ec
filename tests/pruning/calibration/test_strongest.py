"""The strongest positions against a plain forward that keeps every activation, and beside the moments."""

import numpy as np
import pytest
import torch
from calibration.texts_and_families import tokens
from strongest import by_hand, recorded

from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import collect, collect_strongest, track_strongest
from gprune.pruning.calibration.strongest import PeakTracker
from gprune.study import CalibrationSettings
from gprune.system.errors import NumericsError, SettingsError


def settings(**changes):
    return CalibrationSettings(**({"samples": 10, "length": 6, "shards": 2, "batch": 4} | changes))


def same(actual, expected):
    for name, values in zip(("sequences", "positions", "values"), expected, strict=True):
        np.testing.assert_array_equal(getattr(actual, name), values, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("samples", "count"), [(10, 3), (10, 64), (2, 1)])
def test_they_are_those_of_a_plain_forward(dtype, samples, count):
    decoder, calibration = tiny_decoder(dtype=dtype, layers=3, neurons=13), tokens(samples)
    chosen = settings(samples=samples)
    expected = by_hand(recorded(decoder, calibration.ids, 4), count)
    strongest = track_strongest(decoder, calibration, count)
    collect(decoder, calibration, chosen, strongest=strongest)
    actual = strongest.result(calibration)
    same(actual, expected)
    same(collect_strongest(decoder, calibration, chosen, count), expected)
    assert (actual.text, actual.fingerprint, actual.length) == ("a text", "fingerprint", 6)
    assert actual.values.dtype == np.float32 and actual.sequences.dtype == actual.positions.dtype == np.int16
    assert actual.kept == min(count, samples)
    # each of them of another sequence
    assert all(len(set(row)) == len(row) for row in actual.sequences.reshape(-1, actual.kept))


@pytest.mark.parametrize("device", ["cpu", "elsewhere"])
@pytest.mark.parametrize("batches", [[12], [1] * 12, [5, 5, 2]])
def test_ties_go_to_the_earlier_token_and_the_earlier_sequence_however_they_are_cut(batches, device, monkeypatch):
    values = torch.randint(-3, 4, (2, 12, 5, 7), generator=torch.Generator().manual_seed(0)).float()
    values[:, :, :, 0] = 0
    strongest = PeakTracker(4, 12, 2, 7, torch.device("cpu"))
    if device != "cpu":
        # the way of a GPU, which has no other arithmetic
        monkeypatch.setattr(PeakTracker, "_add_on_cpu", _as_elsewhere)
    for batch in values.split(batches, dim=1):
        for layer in range(2):
            strongest.add(layer, batch[layer])
        strongest.commit(strongest.prepare())
    record = strongest.result(tokens(12, 5))
    same(record, by_hand(values.numpy(), 4))
    assert not record.values[:, 0].any() and (record.sequences[:, 0] == np.arange(4)).all()


def _as_elsewhere(self, layer, inputs):
    places = inputs.abs().max(dim=1, keepdim=True).indices
    self.peaks[layer], self.peak_at[layer] = inputs.gather(1, places)[:, 0], places[:, 0]


def test_a_batch_that_was_prepared_and_not_taken_over_leaves_nothing():
    decoder, calibration = tiny_decoder(), tokens()
    expected = collect_strongest(decoder, calibration, settings(batch=2), 3)
    real, failed = decoder.hidden_states, []

    def short(ids):
        actual = real(ids)
        if len(ids) > 2:
            failed.append(len(ids))
            raise torch.OutOfMemoryError("out of memory")
        return actual

    decoder.hidden_states = short
    actual = collect_strongest(decoder, calibration, settings(batch=4), 3)
    same(actual, (expected.sequences, expected.positions, expected.values))
    assert failed == [4]


def test_what_is_not_finite_or_too_long_is_refused():
    decoder = tiny_decoder(layers=3)
    decoder.up_proj(1).weight[0, 0] = float("nan")
    with pytest.raises(NumericsError, match=r"StrongestPositions.values holds \d+ values that are not finite"):
        collect_strongest(decoder, tokens(), settings(), 2)
    short = tiny_decoder()
    short.model.config.max_position_embeddings = 5
    with pytest.raises(SettingsError, match="set calibration.length to 5 or less"):
        collect_strongest(short, tokens(), settings(), 2)
    with pytest.raises(SettingsError, match=r"calibration.positions must be 0 to 64 \(got 65\)"):
        settings(positions=65)
