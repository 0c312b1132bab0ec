"""Names of texts that the model writes itself: what they say, and what each mistake is answered with."""

import pytest

from gprune.data import texts
from gprune.data.texts.naming import parse
from gprune.data.texts.sampled import EXAMPLE, OPTIONS, Sampling, sampling_of
from gprune.data.texts.source import documents, resolve
from gprune.system.errors import CorpusError, SettingsError


def test_options_are_read_and_left_out_ones_have_defaults():
    assert sampling_of(parse("self:")) == Sampling(0, 1.0, 0, 0.8)
    every = "self:#keep=.5&length=64&temperature=0.75&seed=12"
    assert sampling_of(parse(every)) == Sampling(12, 0.75, 64, 0.5)
    assert sampling_of(parse(EXAMPLE)) == Sampling(1, 0.8, 0, 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("self:wikitext2", r"'self:wikitext2' names no text: .* is self:, its options follow a #"),
        ("self:seed=0,keep=0.8", r"its options follow a #, as in self:#seed=1&temperature=0.8"),
        ("self:#split=test", "has no option 'split': it takes seed, temperature, length, keep"),
        ("self:#temperature=0", "temperature='0' of the text .* must be a number from 0.01 to 10"),
        ("self:#temperature=nan", "must be a number from 0.01 to 10"),
        ("self:#temperature=1e1", "must be a number from 0.01 to 10"),
        ("self:#keep=.", "keep='.' .* must be a number from 0.05 to 1"),
        ("self:#keep=1.5", "must be a number from 0.05 to 1"),
        ("self:#length=1", "must be a whole number from 2 to"),
        ("self:#seed=-1", "seed='-1' .* must be a whole number from 0 to"),
        ("self:#seed=" + "9" * 5000, "must be a whole number from 0 to"),
        ("self:#seed=1&seed=2", "'seed' twice"),
    ],
)
def test_mistakes_are_said(text, message):
    with pytest.raises(SettingsError, match=message) as caught:
        resolve(text, "calibration")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("option", OPTIONS)
def test_other_texts_have_none_of_its_options(option, tmp_path):
    place = tmp_path / "plain.txt"
    place.write_text("words")
    for text in ("wikitext2", "python-reference", str(place)):
        with pytest.raises(SettingsError, match=f"no option '{option}'"):
            resolve(f"{text}#{option}=1", "calibration")


def test_it_is_described_and_told_apart_without_a_model():
    words = "seed 2, temperature 1, documents of 64 tokens, the 80% of lowest perplexity"
    assert texts.describe("self:#seed=2&length=64") == f"written by the model itself ({words})"
    names = ("self:", "self:#seed=1", "self:#temperature=0.5", "self:#length=9", "self:#keep=1")
    assert len({texts.fingerprint(name, "calibration") for name in names}) == len(names)
    assert texts.fingerprint("self:", "evaluation") != texts.fingerprint("self:", "calibration")
    assert texts.fingerprint("self:#seed=0", "calibration") == texts.fingerprint("self:", "calibration")


def test_it_cannot_be_read_without_a_run():
    with pytest.raises(CorpusError, match="is written by the model in a run"):
        list(documents(resolve("self:", "calibration")))
    with pytest.raises(CorpusError, match="is written by the model in a run"):
        texts.draw("self:", object(), 2, 2, 0)
