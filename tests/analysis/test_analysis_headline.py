"""The overview's sentence: its numbers, its words in every situation, and what it must not say."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gprune.analysis import comparison
from gprune.analysis import headline as analysis
from gprune.analysis.paired_test import Measurement
from gprune.evaluation import holdout
from gprune.records import TextOverlap
from gprune.study import EvaluationSettings, Study

TEXTS = ("a", "b", "c")


def a_study(**changes):
    values: dict[str, Any] = {"model": "demo", "primary": "a", "auxiliary": "b"}
    values |= {"evaluation": EvaluationSettings(texts=TEXTS), "methods": ("dense", "gprune", "flap")}
    return Study(**(values | changes))


def cell(method, level, text="c", seed=0, **changes):
    """A measurement whose windows share their difficulty, with a little noise of each method."""
    shared = np.random.default_rng(1).normal(size=40)
    own = np.random.default_rng([seed, len(method), ord(method[0])]).normal(size=40)
    losses = level + 0.5 * shared + 0.01 * own
    kept = 1.0 if method == "dense" else 0.5
    error = losses.std(ddof=1) / np.sqrt(40) * np.exp(losses.mean())
    found = Measurement("r", method, text, float(np.exp(losses.mean())), float(error), 40, 8, kept, 0, "m", "", losses)
    return replace(found, **changes)


def standings(study, measured=True, **contents):
    """Of texts of which nothing stands in a calibration set."""
    texts = study.evaluation.texts if measured else ()
    overlaps = {text: TextOverlap(text, 17, 40, np.zeros(2), np.ones(2)) for text in texts}
    known: dict[str, dict[str, str]] = {"calibration": {}, "evaluation": {}} | contents
    return holdout.standings(study, known["calibration"], known["evaluation"], overlaps)


def apart(study, calibration, evaluation):
    return holdout.unseen(standings(study, calibration=calibration, evaluation=evaluation))


def said(*cells, complete=True, **changes):
    study = a_study(**changes)
    return told(cells, study, standings(study), complete)


def told(cells, study, known, complete=True):
    found = analysis.outcome(lines_of(cells), study, known)
    assert found is not None
    return analysis.headline(found, known[found.text], study, complete)


def lines_of(cells):
    return comparison.lines(comparison.rows(list(cells)))


DENSE = cell("dense", 3.0)


@pytest.mark.parametrize("seed", range(12))
def test_the_numbers_are_the_ratios_of_perplexities_and_the_words_follow_their_signs(seed):
    random = np.random.default_rng(seed)
    first, second = 3.0 + random.uniform(-0.5, 2, 2)
    base, ours = cell("flap", first, seed=seed), cell("gprune", second, seed=seed)
    found = said(DENSE, base, ours)
    changes = [100 * (each.perplexity / DENSE.perplexity - 1) for each in (base, ours)]
    numbers = [float(word) for word in re.findall(r"([\d.]+) %", found.sentence.partition(". ")[0])]
    for number, change in zip(numbers, changes, strict=True):
        assert number == pytest.approx(abs(change), abs=0.5 if abs(change) >= 10 else 0.05)
    assert ("rises" in found.sentence) == any(change > 0 for change in changes)
    assert ("falls" in found.sentence) == any(change < 0 for change in changes)
    gap = ours.losses - base.losses
    beyond = abs(gap.mean()) > 2 * gap.std(ddof=1) / np.sqrt(40)
    assert found.verdict == ("within noise" if not beyond else "better" if gap.mean() < 0 else "worse")
    assert ("FLAP does better: GPrune’s perplexity is" in found.sentence) == (found.verdict == "worse")
    gained = f"{np.expm1(gap.mean()):+.1%}".replace("-", "−").replace("%", " %")
    assert gained in found.detail


def test_the_sentence_for_a_better_gprune_and_what_decides_nothing_is_no_victory():
    found = said(DENSE, cell("flap", 4.425), cell("gprune", 3.345))
    assert found.verdict == "better"
    pattern = "Half of the weights removed: FLAP’s perplexity on unseen text rises 3.. %, GPrune’s 4. %"
    assert re.fullmatch(pattern, found.sentence)
    twin = cell("flap", 3.4)
    found = said(DENSE, twin, cell("gprune", 3.4, losses=twin.losses + 1e-3 * np.resize([1, -1], 40)))
    assert found.verdict == "within noise" and found.sentence.endswith("call between GPrune and FLAP")
    one = {"windows": 1, "losses": np.array([3.0])}
    found = said(DENSE, cell("flap", 9.0, **one), cell("gprune", 3.0, windows=1, losses=np.array([2.0])))
    assert found.verdict == "within noise" and "error of the difference is not known" in found.detail
    found = said(DENSE, cell("flap", 4.0), cell("gprune", 3.3, retention=0.6))
    assert found.verdict == "open" and "No winner: GPrune keeps 60.0 % and FLAP 50.0 %" in found.sentence
    lost = cell("flap", 4.0, perplexity=float("inf"), losses=np.empty(0))
    found = said(DENSE, lost, cell("gprune", 3.3))
    assert "grows beyond all measure" in found.sentence and "inf" not in found.sentence
    assert "nan" not in found.sentence + found.detail
    found = said(DENSE, cell("flap", 3.0 + np.log(100)), cell("gprune", 3.0 + np.log(1.5)))
    assert "rises to 100 times that of the dense model, GPrune’s rises 50 %" in found.sentence


@pytest.mark.parametrize(
    ("level", "verdict", "ending"),
    [
        (3.2, "worse", ". LLM-Pruner does better: GPrune’s perplexity is 11 % higher"),
        (3.6, "better", "%"),
        (None, "within noise", ". Too close to call between GPrune and LLM-Pruner, the best other method"),
    ],
)
def test_a_third_method_that_wins_or_ties_is_named_whatever_flap_does(level, verdict, ending):
    ours, base = cell("gprune", 3.3), cell("flap", 4.0)
    twin = {"losses": ours.losses + 1e-3 * np.resize([1, -1], 40), "perplexity": ours.perplexity}
    third = cell("llm_pruner", level) if level else cell("llm_pruner", 3.3, **twin)
    found = said(DENSE, base, ours, third, methods=("dense", "gprune", "flap", "llm_pruner"))
    assert found.verdict == verdict and found.sentence.endswith(ending)
    change = np.expm1((ours.losses - third.losses).mean())
    size = f"{change:+.1%}".replace("-", "−").replace("%", " %")
    assert f"against the best other method here, LLM-Pruner: {size}" in found.detail
    assert found.detail.endswith("(95 % interval, paired; one seed).")
    # of another budget it wins nothing
    other = said(DENSE, base, ours, replace(third, retention=0.6))
    assert other.verdict == "better" and "LLM-Pruner" not in other.sentence + other.detail


def test_flap_is_named_with_its_error_also_where_it_is_neither_the_own_method_nor_the_best():
    ours, flap = cell("gprune", 3.3), cell("flap", 3.9)
    methods = ("dense", "gprune", "fang", "llm_pruner", "flap")
    others = [cell("fang", 3.8), cell("llm_pruner", 3.5), flap]
    found = said(DENSE, ours, *others, metric="twflap", methods=methods)
    gap = ours.losses - flap.losses
    change = np.expm1(gap.mean())
    error = 2.0227 * (1 + change) * gap.std(ddof=1) / np.sqrt(40)
    size = f"{change:+.1%} ± {error:.1%}".replace("-", "−").replace("%", " %")
    assert f"; against FLAP: {size} (95 % interval, paired; one seed)" in found.detail
    assert "GPrune against FANG: " in found.detail and "method here, LLM-Pruner: " in found.detail
    assert f"FLAP {flap.perplexity:.1f}" in found.detail
    # of another budget it cannot be held against GPrune
    others[-1] = replace(flap, retention=0.6)
    assert "FLAP" not in said(DENSE, ours, *others, metric="twflap", methods=methods).detail


def test_another_form_of_a_method_counts_as_a_rival():
    found = said(DENSE, cell("flap", 4.0), cell("gprune", 3.3), cell("flap_pooled", 3.1))
    assert found.verdict == "worse" and "FLAP, pooled does better" in found.sentence


def test_without_an_unseen_text_the_calibration_text_is_named():
    evaluation = EvaluationSettings(texts=("b", "a"))
    cells = [cell(name, level, text) for name, level in (("flap", 4.0), ("gprune", 3.3)) for text in "ab"]
    found = said(DENSE, cell("dense", 3.0, "a"), *cells, evaluation=evaluation)
    assert "on a (other split of A) rises" in found.sentence
    assert "No text of this run is unseen; this one is the other split of A" in found.detail
    assert "unseen" not in found.sentence


def test_without_a_measured_overlap_no_text_is_called_unseen():
    study, cells = a_study(), [DENSE, cell("flap", 4.0), cell("gprune", 3.3)]
    found = told(cells, study, standings(study, measured=False))
    assert "on c, text of another corpus, rises" in found.sentence and "unseen" not in found.sentence
    assert "is not measured, so it is not called unseen: run the study again" in found.detail
    assert "Unseen: another corpus than A and B; none of it stands word for word in A or B" in said(*cells).detail


def test_a_control_that_does_as_well_is_named_and_is_nobodys_opponent():
    methods = ("dense", "gprune", "flap", "flap_uniform")
    ours, base = cell("gprune", 3.4), cell("flap", 4.0)
    twin = replace(ours, method="msl_layers", losses=ours.losses + 1e-3 * np.resize([1, -1], 40))
    worse = said(DENSE, base, ours, cell("msl_layers", 3.9), cell("flap_uniform", 3.7), methods=methods)
    assert worse.verdict == "better" and "control" not in worse.sentence
    alike = said(DENSE, base, ours, twin, cell("flap_uniform", 3.7), methods=methods)
    assert alike.sentence.endswith("GPrune’s 49 %. A control does as well: MSL, one module a layer (+0.0 % perplexity)")
    better = said(DENSE, base, ours, cell("flap_uniform", 3.3), methods=methods)
    change = np.exp((cell("flap_uniform", 3.3).losses - ours.losses).mean()) - 1
    assert change < 0 and f"{100 * change:.1f} %".replace("-", "−") in better.sentence
    assert "A control does better: FLAP, one ratio (" in better.sentence and "FLAP’s perplexity" in better.sentence
    # of another budget it says nothing
    other = cell("flap_uniform", 3.3, retention=0.6)
    assert "control" not in said(DENSE, base, ours, other, methods=methods).sentence
    # without a baseline, neither a control nor another form of one stands in
    alone = said(DENSE, ours, cell("flap_no_bias", 4.0), cell("flap_pooled", 3.9), twin, methods=methods[:2])
    assert alone.sentence.endswith("its metric’s own method is not part of this run")
    assert alone.verdict == "open"


def test_a_text_is_unseen_by_name_and_by_content():
    study = a_study(evaluation=EvaluationSettings(texts=("a#split=test", "c", "copy of b")))
    contents = {"a#split=test": "4", "c": "3", "copy of b": "2"}
    assert apart(study, {"primary": "1", "auxiliary": "2", "substitute": "3"}, contents) == ["c"]


def test_every_part_of_a_calibration_text_is_read_and_parts_of_others_are_unseen():
    texts = ("b#split=validation", "c#split=train", "b2", "c#split=test", "hub:x/b#split=test")
    study = a_study(primary="a#split=train", auxiliary="b", evaluation=EvaluationSettings(texts=texts))
    assert apart(study, {}, {}) == ["c#split=train", "b2", "c#split=test", "hub:x/b#split=test"]
    # the same passages under another part's name are no other text
    contents = {"c#split=train": "1", "c#split=test": "2"}
    assert "c#split=train" not in apart(study, {"primary": "1", "auxiliary": ""}, contents)
    # an unknown content is not a content that two texts share
    assert apart(study, {"primary": "", "auxiliary": ""}, dict.fromkeys(texts, "")) == [
        "c#split=train", "b2", "c#split=test", "hub:x/b#split=test",
    ]  # fmt: skip


def test_what_is_missing_is_said():
    alone = said(DENSE, cell("gprune", 3.3), complete=False).sentence
    assert alone.endswith("FLAP is not measured yet") and "GPrune’s perplexity" in alone
    left_out = said(DENSE, cell("flap", 3.3), methods=("dense", "flap")).sentence
    assert left_out.endswith("GPrune is not part of this run") and "FLAP’s perplexity" in left_out
    lone = said(DENSE, cell("gprune", 3.3), methods=("dense", "gprune")).sentence
    assert lone.endswith("its metric’s own method is not part of this run")
    assert said(DENSE, complete=False).sentence == "No pruned model is measured on c yet"
    assert said(complete=False).sentence == "No perplexity is measured yet"
    assert said().sentence == "No perplexity was measured"
    found = said(cell("flap", 4.0), cell("gprune", 3.5))
    assert re.search(r"On unseen text, GPrune’s perplexity is 39 % lower", found.sentence, re.I)


def test_the_opponent_is_the_metrics_own_method_or_else_the_strongest_other():
    cells = [DENSE, cell("gprune", 3.3), cell("flap", 4.0), cell("fang", 3.6), cell("wanda_sp", 3.8)]
    methods = tuple(item.method for item in cells)
    assert "FANG’s" in said(*cells, metric="twflap", methods=methods).sentence
    assert "Wanda-sp’s" in said(*cells, metric="wanda_sp", methods=methods).sentence
    without = [item for item in cells if item.method != "flap"]
    assert "FANG’s" in said(*without, methods=tuple(item.method for item in without)).sentence
    # where it is still to come nobody stands in for it
    assert "FLAP is not measured yet" in said(*without, methods=methods, complete=False).sentence


@pytest.mark.parametrize(
    ("kept", "words"),
    [(0.501, "Half of"), (0.75, "A quarter of"), (0.25, "Three quarters of"), (0.8, "20 % of")],
)
def test_the_removed_share_is_the_one_really_met(kept, words):
    found = said(DENSE, cell("flap", 4.0, retention=kept), cell("gprune", 3.3, retention=kept))
    assert found.sentence.startswith(f"{words} the weights removed: ")


def overlap(text, *share, drawn=0.1):
    return TextOverlap(text, 17, 80, np.array(share), np.full(2, drawn))


def standing_of(text, *share, content="", drawn=0.1):
    study = Study("demo", "wikitext2", "ptb", evaluation=EvaluationSettings(texts=(text,)))
    calibration = {"primary": "1", "auxiliary": "2", "substitute": "3"}
    measured = {text: overlap(text, *share, drawn=drawn)} if share else {}
    return holdout.standings(study, calibration, {text: content}, measured)[text]


@pytest.mark.parametrize(
    ("found", "brief", "is_unseen"),
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
def test_only_another_corpus_of_low_measured_overlap_is_unseen(found, brief, is_unseen):
    assert (found.brief, found.unseen) == (brief, is_unseen)
    assert ("unseen" in found.brief) == is_unseen
    assert found.to_dict()["unseen"] is is_unseen


def test_of_a_text_of_which_little_was_drawn_less_may_be_shared():
    # a copy would overlap by the 2 % that were drawn: 0.6 % is too much already
    assert standing_of("news.txt", 0.006, 0.0, drawn=0.02).copied == "A"
    assert standing_of("news.txt", 0.006, 0.0, drawn=0.5).unseen


def test_the_sentence_says_why_and_what_was_measured():
    assert standing_of("c4", 0.0, 0.00004).sentence == (
        "c4: another corpus than A and B: unseen; none of it stands word for word in A, "
        "< 0.01 % in B (runs of 17 tokens)"
    )
    assert standing_of("wikitext2", 0.125, 0.0).sentence == (
        "wikitext2: another split of the corpus of A, not unseen; "
        "12 % of it stands word for word in A, none in B (runs of 17 tokens)"
    )
    copy = standing_of("news.txt", 0.5, 0.0).sentence
    assert "another name, but it stands in A, so it is not unseen" in copy
    assert standing_of("c4").sentence.endswith("its overlap with A and B is not measured")


def test_findings_are_told_on_unseen_text_else_on_another_corpus_else_on_a():
    texts = ("wikitext2", "ptb", "news.txt", "c4")
    study = Study("demo", "wikitext2", "ptb", evaluation=EvaluationSettings(texts=texts))
    measured = {text: overlap(text, 0.0, 0.0) for text in texts}

    def first(left, known):
        own = Study("demo", "wikitext2", "ptb", evaluation=EvaluationSettings(texts=left))
        return holdout.first(holdout.standings(own, {}, {}, known), own)

    assert holdout.unseen(holdout.standings(study, {}, {}, measured)) == ["news.txt", "c4"]
    assert first(texts, measured) == "news.txt"
    assert first(texts, {"c4": measured["c4"]}) == "c4"
    assert first(texts, {}) == "news.txt" and first(("ptb", "wikitext2"), {}) == "wikitext2"
    assert first((), {}) == ""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ""),
        ({"repair.kind": "none"}, "Every method has no repair."),
        (
            {"repair.kind": "auto"},
            "Every method has the repair that was chosen for it on held-out text, or none.",
        ),
        (
            {"repair.kind": "least_squares", "repair.texts": "both_and_sampled"},
            "Every method has least squares on A, B and self, in place of what it does by itself.",
        ),
    ],
)
def test_a_repair_of_every_method_is_said_beside_the_numbers(settings, words):
    study = a_study().with_settings(settings)
    cells = [cell("dense", 3.0), cell("gprune", 3.2), cell("flap", 3.4)]
    detail = told(cells, study, standings(study)).detail
    assert detail.endswith(words) and ("Every method" in detail) == bool(words)
