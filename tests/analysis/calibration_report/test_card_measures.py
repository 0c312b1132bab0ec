"""The numbers of a card against loops over a real run of a small model, and the command that writes it."""

import json

import numpy as np
import pytest
import tiny_study

from gprune import pipeline
from gprune.__main__ import main
from gprune.analysis import calibration_report, resampling
from gprune.data import texts
from gprune.models import vocabulary
from gprune.models.loading import load
from gprune.pipeline import stages
from gprune.pruning import scoring
from gprune.pruning.allocation import uniform
from gprune.pruning.calibration import collect
from gprune.pruning.ranking import ranks
from gprune.pruning.scoring import neuron_scorer
from gprune.store import Store
from gprune.study import CalibrationSettings, from_dict, run_name
from gprune.system.errors import SettingsError, StoreError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    values = tiny_study.made(folder, substitute="self:", methods=["dense"])
    values["calibration"] = {"samples": 24, "length": 16, "batch": 8, "flap_variant": "released"}
    values["evaluation"] = {"texts": [], "preset": "16"}
    study, store = from_dict(values), Store(folder / "cache")
    pipeline.run(study, store, lambda *_: None, "agreement")
    return study, store


def results_of(finished):
    study, store = finished
    return pipeline.opened(study, store)


@pytest.fixture(scope="module")
def cards(finished):
    return calibration_report.measure(results_of(finished), run_name(finished[0]), {"primary": "a file"})


def kept_by(finished, role, shards=None):
    """Neurons and groups that one ratio in every layer keeps by the plain scores of some shards."""
    study, results = finished[0], results_of(finished)
    plain = study.with_settings({"calibration.flap_variant": "paper"}).calibration
    shape = results.get(stages.shape)
    statistics, norms = results.get(stages.statistics, role), results.get(stages.norms)
    scores = scoring.score("flap", statistics, norms, shape, plain, shards)
    return scores, uniform.allocate(scores, shape, study.retention)


def neurons(masks):
    return {tuple(index) for index in np.argwhere(masks.ffn)}


def test_beside_another_text_are_the_numbers_of_a_loop(finished, cards):
    (first_kept, first), (second_kept, second) = (kept_by(finished, role) for role in ("primary", "auxiliary"))
    beside_b = next(other for other in cards["A"].others if other.letter == "B")
    moved = np.abs(ranks(first_kept.ffn) - ranks(second_kept.ffn)) / (first_kept.ffn.shape[1] - 1)
    assert beside_b.drift == pytest.approx(np.median(moved))
    a, b = neurons(first), neurons(second)
    assert beside_b.jaccard == pytest.approx(len(a & b) / len(a | b))
    assert beside_b.changed == pytest.approx(len(a ^ b) / first.ffn.size)
    assert beside_b.groups_changed == pytest.approx(np.mean(first.heads != second.heads))
    halves = [neurons(kept_by(finished, "primary", shards)[1]) for shards in ([0, 2, 4, 6], [1, 3, 5, 7])]
    assert beside_b.jaccard_halves == pytest.approx(len(halves[0] & halves[1]) / len(halves[0] | halves[1]))
    half = neurons(kept_by(finished, "auxiliary", [0, 2, 4, 6])[1])
    assert beside_b.jaccard_across == pytest.approx(len(halves[0] & half) / len(halves[0] | half))
    # what chance gives: independent choices of as many in each layer
    counts = first.ffn.sum(axis=1)
    shared = (counts**2 / first.ffn.shape[1]).sum()
    assert beside_b.jaccard_chance == pytest.approx(shared / (2 * counts.sum() - shared))


def test_sampling_is_what_the_law_says_at_the_size_drawn_and_the_size_is_that_of_the_tokens(cards, finished):
    card_a, card_b = cards["A"], cards["B"]
    beside_b = next(text for text in card_a.others if text.letter == "B")
    both = [card.changed.at(24) for card in (card_a, card_b)]
    assert beside_b.changed_sampling == pytest.approx(np.mean(both))
    squares = [card.drift.at(24) ** 2 for card in (card_a, card_b)]
    assert beside_b.drift_sampling == pytest.approx(np.sqrt(np.mean(squares)))
    assert beside_b.drift_beyond == pytest.approx(np.sqrt(max(beside_b.drift**2 - np.mean(squares), 0)))
    assert card_a.resampled.sequences.tolist() == [3, 6, 9, 12]
    study = finished[0]
    for role, letter in (("primary", "A"), ("substitute", "C")):
        tokens, size = results_of(finished).get(stages.tokens, role), cards[letter].size
        assert (size.sequences, size.length, size.tokens) == (24, 16, 384)
        assert size.available == (tokens.available if letter == "A" else None)
        assert size.distinct == len(np.unique(tokens.ids))
        reader = vocabulary.tokenizer(study.model)
        assert size.characters == sum(len(reader.decode(row)) for row in tokens.ids.tolist())
        assert size.entries == 320
    assert cards["A"].described == "a file" and cards["C"].name == "self:"


def test_a_run_that_has_measured_nothing_says_so(finished, tmp_path):
    results = stages.Results(Store(tmp_path), results_of(finished).graph)
    assert calibration_report.measurable(results) == []
    with pytest.raises(StoreError, match="has measured none of its texts yet: run the study first"):
        calibration_report.measure(results, "r")


def test_the_command_says_it_and_writes_it(finished, cards, tmp_path, capsys):
    study, store = finished
    out = tmp_path / "card.json"
    words = ["card", run_name(study), "c", "-o", str(out), "--cache", str(store.root)]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "Does the choice of self: change the model?" in said.out and str(out) in said.err
    content = json.loads(out.read_text(encoding="utf-8"))
    assert content["others"][0]["jaccard"] == cards["C"].others[0].jaccard and content["share"] == 0.25


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["D"], "has no calibration text 'D': choose one of A ("),
        (["A", "-o", "card.pdf"], "must end in one of .html, .json"),
    ],
)
def test_mistakes_are_sentences(finished, words, message, capsys):
    study, store = finished
    assert main(["card", run_name(study), *words, "--cache", str(store.root)]) == 2
    assert message in capsys.readouterr().err
    assert main(["card", "nothing", "A", "--cache", str(store.root)]) == 2
    assert "there is no run 'nothing'" in capsys.readouterr().err


def test_texts_are_found_by_letter_role_and_name(finished):
    study = finished[0]
    for text, letter in (("a", "A"), ("auxiliary", "B"), ("self:", "C"), (study.primary, "A")):
        assert calibration_report.letter_of(study, text) == letter
    with pytest.raises(SettingsError, match="no calibration text"):
        calibration_report.letter_of(study, "")


def samples(shared, decoder, sequences):
    settings = CalibrationSettings(samples=sequences, batch=32)
    name = str(shared / "data" / "wikitext-2" / "valid.txt")
    tokens = texts.draw(name, decoder.tokenizer, sequences, settings.length, 0)
    statistics = collect(decoder, tokens, settings)
    score = neuron_scorer("flap", statistics, decoder.weight_norms())
    half = np.full(decoder.shape.layers, decoder.shape.neurons // 2)
    return resampling.resampling_drift(score, statistics.shard_samples, half)


@pytest.mark.long
def test_samples_of_at_most_32_sequences_tell_what_samples_of_128_do(shared):
    decoder = load(str(shared / "models" / "textllama-6m"), "cpu", "float32")
    few, many = (samples(shared, decoder, sequences) for sequences in (64, 256))
    assert few.sequences.max() == 32 and many.sequences.max() == 128
    for name in ("drift", "changed"):
        law = resampling.fit_drift_law(few.sequences, getattr(few, name))
        measured = getattr(many, name).mean(axis=1)
        foretold = [law.at(size) for size in many.sequences]
        np.testing.assert_allclose(foretold, measured, rtol=0.15, err_msg=name)
