"""The overview's sentence: its numbers, its words in every situation, and what it must not say."""

import re
from dataclasses import replace

import numpy as np
import pytest

from gprune.analysis import comparison, verdict
from gprune.analysis.paired_test import Measurement
from gprune.data.texts.holdout import unseen
from gprune.evaluation import protocol
from gprune.records import TextOverlap
from gprune.study import EvaluationSettings, Study

TEXTS = ("a", "b", "c")


def a_study(**changes):
    values = {"model": "demo", "primary": "a", "auxiliary": "b"}
    values |= {"evaluation": EvaluationSettings(texts=TEXTS), "methods": ("dense", "gprune", "flap")}
    return Study(**(values | changes))


def cell(method, level, text="c", seed=0, **changes):
    """A measurement whose windows share their difficulty, with a little noise of each method."""
    shared = np.random.default_rng(1).normal(size=40)
    noise = np.random.default_rng([seed, len(method), ord(method[0])]).normal(size=40)
    losses = level + 0.5 * shared + 0.01 * noise
    perplexity, share = float(np.exp(losses.mean())), 1.0 if method == "dense" else 0.5
    error = perplexity * float(losses.std(ddof=1)) / 40**0.5
    return replace(Measurement("r", method, text, perplexity, error, 40, 8, share, 0, "m", "", losses), **changes)


def text_statuses(study, measured=True, **contents):
    """Of texts of which nothing stands in a calibration set."""
    texts = study.evaluation.texts if measured else ()
    overlaps = {text: TextOverlap(text, 17, 40, np.zeros(2), np.ones(2)) for text in texts}
    return protocol.holdout_statuses(study, contents.get("calibration", {}), contents.get("evaluation", {}), overlaps)


def unseen_texts(study, calibration, evaluation):
    return unseen(text_statuses(study, calibration=calibration, evaluation=evaluation))


def said(*cells, **changes):
    study = a_study(**changes)
    return headline_of(cells, study, text_statuses(study))


def headline_of(cells, study, statuses):
    result = verdict.headline_opponents(comparison.lines(comparison.rows(list(cells))), study, statuses)
    return verdict.headline(result, statuses[result.text], study)


DENSE = cell("dense", 3.0)


@pytest.mark.parametrize("seed", range(12))
def test_the_numbers_are_the_ratios_of_perplexities_and_the_words_follow_their_signs(seed):
    random = np.random.default_rng(seed)
    first, second = 3.0 + random.uniform(-0.5, 2, 2)
    base, gprune = cell("flap", first, seed=seed), cell("gprune", second, seed=seed)
    headline = said(DENSE, base, gprune)
    changes = [100 * (each.perplexity / DENSE.perplexity - 1) for each in (gprune, base)]
    numbers = [float(word) for word in re.findall(r"([\d.]+)%", headline.sentence.partition(". ")[0])]
    assert numbers[0] == 50
    for number, change in zip(numbers[1:], changes, strict=True):
        assert number == pytest.approx(abs(change), abs=0.5 if abs(change) >= 10 else 0.05)
    assert ("rises" in headline.sentence) == any(change > 0 for change in changes)
    assert ("falls" in headline.sentence) == any(change < 0 for change in changes)
    gap = gprune.losses - base.losses
    beyond = abs(gap.mean()) > 2 * gap.std(ddof=1) / np.sqrt(40)
    assert headline.verdict == ("within noise" if not beyond else "better" if gap.mean() < 0 else "worse")
    assert ("higher perplexity than FLAP" in headline.sentence) == (headline.verdict == "worse")
    gained = f"{np.expm1(gap.mean()):+.1%}".replace("-", "−")
    assert gained in headline.detail


def test_the_sentence_for_a_better_gprune_and_what_decides_nothing_is_no_victory():
    headline = said(DENSE, cell("flap", 4.425), cell("gprune", 3.345))
    assert headline.verdict == "better"
    pattern = "At 50% retention, perplexity on unseen text rises 4.% with GPrune and 3..% with FLAP"
    assert re.fullmatch(pattern, headline.sentence) and len(headline.sentence.split()) <= 25
    twin = cell("flap", 3.4)
    headline = said(DENSE, twin, cell("gprune", 3.4, losses=twin.losses + 1e-3 * np.resize([1, -1], 40)))
    assert headline.verdict == "within noise" and "GPrune and FLAP are within noise (" in headline.sentence
    one_window = {"windows": 1, "losses": np.array([3.0])}
    headline = said(DENSE, cell("flap", 9.0, **one_window), cell("gprune", 3.0, windows=1, losses=np.array([2.0])))
    assert headline.verdict == "within noise" and "interval" not in headline.detail
    headline = said(DENSE, cell("flap", 4.0), cell("gprune", 3.3, retention=0.6))
    assert headline.verdict == "open"
    assert headline.sentence.endswith(". No winner: the retentions of GPrune and FLAP differ by 10.0%")
    lost = cell("flap", 4.0, perplexity=float("inf"), losses=np.empty(0))
    headline = said(DENSE, lost, cell("gprune", 3.3))
    assert "is not finite with FLAP" in headline.sentence and "inf" not in headline.sentence.replace("finite", "")
    assert "nan" not in headline.sentence + headline.detail
    headline = said(DENSE, cell("flap", 3.0 + np.log(100)), cell("gprune", 3.0 + np.log(1.5)))
    assert "rises 50% with GPrune and 100-fold with FLAP" in headline.sentence


def test_flap_is_named_with_its_error_also_where_it_is_neither_the_own_method_nor_the_best():
    gprune, flap = cell("gprune", 3.3), cell("flap", 3.9)
    methods = ("dense", "gprune", "fang", "llm_pruner", "flap")
    rivals = [cell("fang", 3.8), cell("llm_pruner", 3.5), flap]
    headline = said(DENSE, gprune, *rivals, metric="twflap", methods=methods)
    gap = gprune.losses - flap.losses
    change = np.expm1(gap.mean())
    error = 2.0227 * (1 + change) * gap.std(ddof=1) / np.sqrt(40)
    size = f"{change:+.1%} ± {error:.1%}".replace("-", "−")
    assert f"; FLAP {size} (95% interval, paired; one seed)" in headline.detail
    assert "GPrune against FANG −" in headline.detail and "; LLM-Pruner −" in headline.detail
    assert f"FLAP {flap.perplexity:.1f}" in headline.detail
    # another form of a method is a rival too
    headline = said(DENSE, cell("flap", 4.0), gprune, cell("flap_pooled", 3.1))
    assert headline.verdict == "worse" and "higher perplexity than FLAP, pooled" in headline.sentence
    # of another budget it cannot be held against GPrune
    rivals[-1] = replace(flap, retention=0.6)
    assert "FLAP" not in said(DENSE, gprune, *rivals, metric="twflap", methods=methods).detail


def test_without_an_unseen_text_the_calibration_text_is_named():
    evaluation = EvaluationSettings(texts=("b", "a"))
    cells = [cell(name, level, text) for name, level in (("flap", 4.0), ("gprune", 3.3)) for text in "ab"]
    headline = said(DENSE, cell("dense", 3.0, "a"), *cells, evaluation=evaluation)
    assert "on a (other split of A) rises" in headline.sentence and "unseen" not in headline.sentence
    assert headline.detail.startswith("a: another split of the corpus of A, not unseen; ")


def test_without_a_measured_overlap_no_text_is_called_unseen():
    study, cells = a_study(), [DENSE, cell("flap", 4.0), cell("gprune", 3.3)]
    headline = headline_of(cells, study, text_statuses(study, measured=False))
    assert "on c (other corpus, overlap unknown) rises" in headline.sentence and "unseen" not in headline.sentence
    assert "its overlap with A and B is not measured" in headline.detail
    assert said(*cells).detail.startswith("c: unseen, a different corpus than A and B; no 17-token verbatim overlap")


def test_a_control_that_does_as_well_is_named_and_is_nobodys_opponent():
    methods = ("dense", "gprune", "flap", "flap_uniform")
    gprune, base = cell("gprune", 3.4), cell("flap", 4.0)
    twin = replace(gprune, method="msl_layers", losses=gprune.losses + 1e-3 * np.resize([1, -1], 40))
    worse = said(DENSE, base, gprune, cell("msl_layers", 3.9), cell("flap_uniform", 3.7), methods=methods)
    assert worse.verdict == "better" and "control" not in worse.sentence
    equal = said(DENSE, base, gprune, twin, cell("flap_uniform", 3.7), methods=methods)
    assert equal.sentence.endswith("FLAP. A control does as well: MSL, one module a layer (+0.0% perplexity)")
    better = said(DENSE, base, gprune, cell("flap_uniform", 3.3), methods=methods)
    change = np.exp((cell("flap_uniform", 3.3).losses - gprune.losses).mean()) - 1
    assert change < 0 and f"{100 * change:.1f}%".replace("-", "−") in better.sentence
    assert "A control does better: FLAP, one ratio (" in better.sentence and "with FLAP. " in better.sentence
    # of another budget it says nothing
    other = cell("flap_uniform", 3.3, retention=0.6)
    assert "control" not in said(DENSE, base, gprune, other, methods=methods).sentence
    # without a baseline, neither a control nor another form of one stands in
    alone = said(DENSE, gprune, cell("flap_no_bias", 4.0), cell("flap_pooled", 3.9), twin, methods=methods[:2])
    assert "No winner: a baseline is not part of this run" in alone.sentence and alone.verdict == "open"


def test_every_part_of_a_calibration_text_is_read_and_parts_of_others_are_unseen():
    texts = ("b#split=validation", "c#split=train", "b2", "c#split=test", "hub:x/b#split=test")
    study = a_study(primary="a#split=train", auxiliary="b", evaluation=EvaluationSettings(texts=texts))
    assert unseen_texts(study, {}, {}) == [*texts[1:]]
    # the same passages under another part's name are no other text
    contents = {"c#split=train": "1", "c#split=test": "2"}
    assert "c#split=train" not in unseen_texts(study, {"primary": "1", "auxiliary": ""}, contents)
    # an unknown content is not a content that two texts share
    assert unseen_texts(study, {"primary": "", "auxiliary": ""}, dict.fromkeys(texts, "")) == [*texts[1:]]


def test_missing_methods_and_the_retention_that_is_met_are_named():
    alone = said(DENSE, cell("gprune", 3.3)).sentence
    assert alone.endswith("with GPrune. No winner: not measured: FLAP")
    left_out = said(DENSE, cell("flap", 3.3), methods=("dense", "flap")).sentence
    assert left_out.endswith("with FLAP. No winner: GPrune is not part of this run")
    lone = said(DENSE, cell("gprune", 3.3), methods=("dense", "gprune")).sentence
    assert lone.endswith("No winner: a baseline is not part of this run")
    assert said(DENSE).sentence == "No pruned model is measured on c" == said().sentence
    for retention, words in ((0.501, "50%"), (0.75, "75%"), (0.25, "25%")):
        headline = said(DENSE, cell("flap", 4.0, retention=retention), cell("gprune", 3.3, retention=retention))
        assert headline.sentence.startswith(f"At {words} retention, ")
    headline = said(cell("flap", 4.0), cell("gprune", 3.5))
    assert re.search(r"perplexity on unseen text is 3.\.\d with GPrune and 5.\.\d with FLAP", headline.sentence)


def test_the_opponent_is_the_metrics_own_method_or_else_the_strongest_other():
    cells = [DENSE, cell("gprune", 3.3), cell("flap", 4.0), cell("fang", 3.6), cell("wanda_sp", 3.8)]
    methods = tuple(item.method for item in cells)
    assert "with FANG" in said(*cells, metric="twflap", methods=methods).sentence
    assert "with Wanda-sp" in said(*cells, metric="wanda_sp", methods=methods).sentence
    without = [item for item in cells if item.method != "flap"]
    assert "with FANG" in said(*without, methods=tuple(item.method for item in without)).sentence
    # where it is still to come nobody stands in for it
    assert "not measured: FLAP" in said(*without, methods=methods).sentence


def overlap(text, *share, share_drawn=0.1):
    return TextOverlap(text, 17, 80, np.array(share), np.full(2, share_drawn))


def standing_of(text, *share, content="", share_drawn=0.1):
    study = Study("demo", "wikitext2", "ptb", evaluation=EvaluationSettings(texts=(text,)))
    calibration = {"primary": "1", "auxiliary": "2", "substitute": "3"}
    measured = {text: overlap(text, *share, share_drawn=share_drawn)} if share else {}
    return protocol.holdout_statuses(study, calibration, {text: content}, measured)[text]


@pytest.mark.parametrize(
    ("status", "brief", "is_unseen"),
    [
        (standing_of("c4", 0.0, 0.0004), "unseen", True),
        (standing_of("c4"), "other corpus, overlap unknown", False),
        (standing_of("wikitext2", 0.0, 0.0), "other split of A", False),
        (standing_of("ptb#split=test", 0.0, 0.0), "other split of B", False),
        (standing_of("wikitext2#split=train", 0.1, 0.0), "same text as A", False),
        # whatever its name, by its content or by what was measured
        (standing_of("news.txt", 0.0, 0.0, content="2"), "same text as B", False),
        (standing_of("news.txt", 0.11, 0.0), "overlaps A", False),
        (standing_of("news.txt", 0.02, 0.011), "overlaps A and B", False),
        # the third text prunes nothing
        (standing_of("news.txt", 0.0, 0.0, content="3"), "unseen", True),
    ],
)
def test_only_another_corpus_of_low_measured_overlap_is_unseen(status, brief, is_unseen):
    assert (status.brief, status.unseen) == (brief, is_unseen)
    assert ("unseen" in status.brief) == is_unseen
    assert status.to_dict()["unseen"] is is_unseen


def test_the_sentence_says_why_and_what_was_measured_and_where_little_was_drawn_less_may_be_shared():
    unseen = "unseen, a different corpus than A and B; none of its 17-token runs occur verbatim in A, < 0.01% in B"
    assert standing_of("c4", 0.0, 0.00004).sentence == f"c4: {unseen}"
    split = "another split of the corpus of A, not unseen; 12% of its 17-token runs occur verbatim in A, none in B"
    assert standing_of("wikitext2", 0.125, 0.0).sentence == f"wikitext2: {split}"
    copy = "a different corpus by name, but its content occurs in A, so it is not unseen"
    assert copy in standing_of("news.txt", 0.5, 0.0).sentence
    assert standing_of("c4").sentence.endswith("its overlap with A and B is not measured")
    # a copy would overlap by the 2 % that were drawn: 0.6 % is too much already
    assert standing_of("news.txt", 0.006, 0.0, share_drawn=0.02).copied == "A"
    assert standing_of("news.txt", 0.006, 0.0, share_drawn=0.5).unseen


def test_findings_are_told_on_unseen_text_else_on_another_corpus_else_on_a():
    texts = ("wikitext2", "ptb", "news.txt", "c4")
    measured = {text: overlap(text, 0.0, 0.0) for text in texts}

    def first(left, overlaps):
        study = Study("demo", "wikitext2", "ptb", evaluation=EvaluationSettings(texts=left))
        statuses = protocol.holdout_statuses(study, {}, {}, overlaps)
        assert unseen(statuses) == [text for text in ("news.txt", "c4") if text in overlaps]
        return protocol.leading_text(statuses, study)

    assert first(texts, measured) == "news.txt"
    assert first(texts, {"c4": measured["c4"]}) == "c4"
    assert first(texts, {}) == "news.txt" and first(("ptb", "wikitext2"), {}) == "wikitext2"
    assert first((), {}) == ""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ""),
        ({"repair.kind": "none"}, "Every method has no repair."),
        ({"repair.kind": "auto"}, "Every method has the repair chosen for it on held-out text, or none."),
        (
            {"repair.kind": "least_squares", "repair.texts": "both_and_sampled"},
            "Every method has least squares on A, B and self.",
        ),
    ],
)
def test_a_repair_of_every_method_is_said_beside_the_numbers(settings, words):
    study = a_study().with_settings(settings)
    cells = [cell("dense", 3.0), cell("gprune", 3.2), cell("flap", 3.4)]
    detail = headline_of(cells, study, text_statuses(study)).detail
    assert detail.endswith(words) and ("Every method" in detail) == bool(words)
