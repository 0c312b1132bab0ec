"""Several processes measure a calibration set as one does: moments, recursion, strongest positions."""

import numpy as np
import pytest
import torch
from strongest import faults, recorded
from threads_of_ranks import together

from gprune.models.distributed.process_group import Withdrawn
from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import collect, collect_strongest, strongest_of
from gprune.records import Tokens
from gprune.study import CalibrationSettings
from gprune.system.errors import Cancelled, NumericsError
from gprune.system.progress import silent

KIND = {"kv_heads": 2, "neurons": 13, "layers": 3}
IDS = np.random.default_rng(0).integers(0, 64, (11, 6)).astype(np.int32)
TOKENS = Tokens("a text", "fingerprint", IDS, 11)
SETTINGS = {"samples": 11, "length": 6, "shards": 4, "batch": 3}


def collected(ranks, listener=silent, **changes):
    decoder, settings = tiny_decoder(**KIND), CalibrationSettings(**(SETTINGS | changes))
    strongest = strongest_of(decoder, TOKENS, 4)
    found = collect(decoder, TOKENS, settings, listener, strongest, ranks)
    return found, strongest.result(TOKENS), decoder.forward_tokens


@pytest.mark.parametrize("count", [2, 3, 4, 13])
def test_all_processes_have_what_one_alone_has(count):
    """More of them than sequences, too: those without any only listen."""
    expected, strongest, passed = collected(None, flap_variant="released")
    activations = recorded(tiny_decoder(**KIND), TOKENS.ids, 4)
    for found, peaks, here in together(count, lambda ranks: collected(ranks, flap_variant="released")):
        assert here == passed == TOKENS.ids.size
        for name in expected.__dataclass_fields__:
            value, wanted = getattr(found, name), getattr(expected, name)
            if isinstance(wanted, np.ndarray):
                scale = np.abs(wanted).max()
                np.testing.assert_allclose(value / scale, wanted / scale, rtol=1e-6, atol=1e-6, err_msg=name)
        assert peaks.length == strongest.length
        assert not faults(peaks, activations, 1e-5)


def test_of_equally_strong_positions_the_earlier_sequence_stays():
    """Every text twice: each strength is there two times, in the share of another process."""
    tokens = Tokens("twice", "fingerprint", np.concatenate([IDS[:4], IDS[:4]]), 8)
    settings = CalibrationSettings(samples=8, length=6, shards=4, batch=1)

    def run(ranks):
        return collect_strongest(tiny_decoder(**KIND), tokens, settings, 3, ranks=ranks)

    expected = run(None)
    for found in together(3, run):
        for name in ("sequences", "positions", "values"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_what_goes_wrong_on_one_ends_the_work_on_all_and_the_first_says_it():
    def run(ranks):
        decoder = tiny_decoder(**KIND)
        if ranks.rank == 1:
            with torch.no_grad():
                decoder.up_proj(1).weight[2] = torch.nan
        return collect(decoder, TOKENS, CalibrationSettings(**SETTINGS), ranks=ranks)

    first, second, third = together(3, run)
    assert isinstance(first, NumericsError) and "down_proj in layer 1 (channel 2)" in str(first)
    assert isinstance(second, Withdrawn) and isinstance(third, Withdrawn)


def test_a_person_stops_all_of_them():
    def stop(done, total, message):
        raise Cancelled("stop")

    first, second = together(2, lambda ranks: collected(ranks, silent if ranks.rank else stop))
    assert isinstance(first, Cancelled) and isinstance(second, Withdrawn)
