"""What may be claimed of methods: ranks, ties, losses, seeds, what is missing, budgets, and FLAP without its bias."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from test_analysis_headline import a_study, text_statuses

from gprune.analysis import comparison, studies, verdict
from gprune.analysis.claims import UNKNOWN, Case, Claim, judge_claim
from gprune.analysis.decision import cheapest, options
from gprune.analysis.paired_test import BETTER, NOISE, WORSE, Difference, Measurement
from gprune.analysis.studies import NOT_RUN, StudyRow
from gprune.analysis.verdict import BEST, OPEN, SECOND

WINDOWS = 4.0 + 0.5 * np.random.default_rng(0).normal(size=40)


def cell(method, level, *, noise=0.001, text="c", run="r", **changes):
    """A perplexity at `level` nats above the windows' own difficulty, with a little noise of its method and run."""
    random = np.random.default_rng([*method.encode(), *run.encode()])
    losses = WINDOWS + level + noise * random.normal(size=40)
    retention = 1.0 if method == "dense" else 0.5
    value, error = float(np.exp(losses.mean())), float(losses.std(ddof=1) / np.sqrt(40) * np.exp(losses.mean()))
    return replace(Measurement(run, method, text, value, error, 40, 8, retention, 0, "m", "t", losses), **changes)


def lines_of(*cells, seeds=(), left_out=()):
    groups = {run: ("study", seed) for seed, run in enumerate(seeds)} if seeds else None
    table = comparison.rows(list(cells)) + comparison.unavailable("r", dict.fromkeys(left_out, "too few layers"))
    return comparison.lines(table, groups)


def expected(*methods, texts=("c",), run="r"):
    return {text: [(run, method) for method in methods] for text in texts}


def signs(*cells, names=("c",), texts=None, **more):
    ranks = verdict.rank_lines(lines_of(*cells, **more), names, texts or {})
    return {name[1]: sign for name, sign in verdict.stars(ranks).items()}


def said(*cells, methods, seeds=()):
    """The headline and the slide's sentence about GPrune, and the verdict behind both."""
    study = a_study(methods=methods)
    lines, texts = lines_of(*cells, seeds=seeds), text_statuses(study)
    outcome = verdict.headline_opponents(lines, study, texts)
    slide = verdict.comparison_finding(lines, ["c"], texts, expected(*methods, run=cells[0].run))
    return verdict.headline(outcome, texts["c"], study), slide


def test_methods_within_noise_share_a_rank_and_a_star_and_the_next_one_is_second():
    tie = [cell("gprune", 0.2, noise=0.02), cell("flap", 0.201, noise=0.02)]
    assert signs(*tie, cell("fang", 0.5), cell("wanda_sp", 0.9)) == {"gprune": BEST, "flap": BEST, "fang": SECOND}
    assert signs(cell("gprune", 0.2), cell("flap", 0.25), cell("fang", 0.5)) == {"gprune": BEST, "flap": SECOND}
    # paired: the error of either method alone is larger than the difference
    assert cell("gprune", 0.2).standard_error / cell("gprune", 0.2).perplexity > 0.05
    assert signs(cell("gprune", 0.2)) == {}
    other_text = {"content": "another"}
    assert signs(cell("gprune", 0.2), cell("flap", 0.25, **other_text)) == {"gprune": BEST, "flap": BEST}


@given(some.dictionaries(some.integers(0, 9), some.integers(0, 20), max_size=8))
def test_a_rank_is_what_its_first_cannot_be_told_from(losses):
    ranks = verdict.judge(losses, lambda first, second: Difference(losses[first] - losses[second], 1.0, True))
    assert ranks.keys() == losses.keys()
    firsts = {rank: min(losses[name] for name in ranks if ranks[name] == rank) for rank in set(ranks.values())}
    # the half interval is 1.96
    for name, rank in ranks.items():
        assert losses[name] - firsts[rank] < 2 and all(losses[name] - firsts[better] >= 2 for better in range(1, rank))


@pytest.mark.parametrize(
    ("level", "word", "ending", "slide"),
    [
        (0.1, BETTER, "% with FLAP", "18.3% lower perplexity than FANG."),
        (0.6, WORSE, "GPrune has a 34.7% higher perplexity than FANG", "34.7% higher perplexity than FANG."),
        (0.3, NOISE, "GPrune and FANG are within noise (−0.2%)", "GPrune and FANG are within noise (−0.2%)."),
    ],
)
def test_a_win_a_loss_and_a_tie_are_said_alike_in_headline_slide_and_table(level, word, ending, slide):
    cells = [cell("dense", 0.0), cell("gprune", level, noise=0.01), cell("flap", 0.9), cell("fang", 0.3, noise=0.01)]
    findings, sentence = said(*cells, methods=("dense", "gprune", "flap", "fang"))
    assert findings.verdict == word and findings.sentence.endswith(ending) and slide in sentence
    assert "GPrune against FLAP −" in findings.detail and "; FANG " in findings.detail
    stars = signs(*cells)
    assert stars["gprune"] == (SECOND if word == WORSE else BEST) and (stars["fang"] == BEST) == (word != BETTER)


def test_of_several_seeds_the_interval_is_over_seeds_too():
    levels = {"a": (0.20, 0.26), "b": (0.30, 0.28), "c2": (0.22, 0.27)}
    runs = {run: [cell("gprune", nats, run=run), cell("flap", other, run=run)] for run, (nats, other) in levels.items()}
    methods, dense = ("dense", "gprune", "flap"), cell("dense", 0.0, run="a")
    (first, _), (second, _) = (said(replace(dense, run=run), *runs[run], methods=methods) for run in "ab")
    assert (first.verdict, second.verdict) == (BETTER, WORSE) and "one seed)" in first.detail
    measured = list(itertools.chain(*runs.values()))
    three, slide = said(dense, *measured, methods=methods, seeds=tuple(levels))
    assert three.verdict == NOISE and "3 seeds)" in three.detail and "are within noise" in slide
    assert "GPrune and FLAP are within noise" in three.sentence
    values = [100 * np.expm1(np.mean(nats)) for nats in zip(*levels.values(), strict=True)]
    assert "rises {:.0f}% with GPrune and {:.0f}% with FLAP".format(*values) in three.sentence
    assert signs(*measured, seeds=tuple(levels)) == dict.fromkeys(("gprune", "flap"), BEST)


def test_nothing_is_claimed_while_a_method_is_missing():
    cells, methods = [cell("dense", 0.0), cell("gprune", 0.2), cell("flap", 0.5)], ("dense", "gprune", "flap", "fang")
    actual, slide = said(*cells, cell("flap_uniform", 0.1), methods=methods)
    assert actual.verdict == OPEN and actual.sentence.endswith("No winner: not measured: FANG")
    assert "GPrune against" not in actual.detail and "control" not in actual.sentence
    assert "lower" not in slide and "No winner: not measured: FANG" in slide
    assert signs(*cells, texts=expected(*methods)) == {} and signs(*cells)["gprune"] == BEST
    # what cannot be measured is left out with its reason, and is not waited for
    assert signs(*cells, texts=expected(*methods), left_out=["fang"])["gprune"] == BEST
    assert verdict.missing_methods(lines_of(*cells), "c", expected(*methods)) == ["fang"]


def test_nothing_is_claimed_on_texts_of_which_one_is_missing():
    cells = [cell(method, level, text=text) for text in "cd" for method, level in (("gprune", 0.2), ("fang", 0.4))]
    cells.append(cell("flap", 0.5))
    measured = expected("gprune", "flap", "fang", texts=("c", "d"))
    assert signs(*cells, texts=measured)["gprune"] == BEST
    assert signs(*cells, names=("d",), texts=measured) == {} == signs(*cells, names=("c", "d"), texts=measured)
    both = [*cells, cell("flap", 0.1, text="d")]
    assert signs(*both, names=("d",), texts=measured)["flap"] == BEST
    assert signs(*both, names=("c", "d"), texts=measured)["gprune"] == BEST


@pytest.mark.parametrize(("bare", "far"), [(0.3, True), (0.85, False), (1.2, False)])
def test_flap_without_its_bias_is_compared_where_flap_is_far_behind_it(bare, far):
    cells = [cell("dense", 0.0), cell("gprune", 0.1), cell("fang", 0.2), cell("flap", 0.9)]
    slide, _ = said(*cells, cell("flap_no_bias", bare), methods=("dense", "gprune", "fang", "flap", "flap_no_bias"))
    share = f"{100 * np.expm1(bare):.0f}%"
    assert slide.sentence.endswith(f"{share} with FLAP without bias compensation") is far and slide.verdict == BETTER
    assert ("; FLAP without bias compensation −" in slide.detail) is far
    assert ("FLAP's bias replaces removed units by their means" in slide.detail) is far


def test_budgets_that_agree_to_the_printed_digit_are_equal():
    cells = [cell("dense", 0.0), cell("wanda_sp", 0.5, noise=0.01), cell("gprune", 0.3, noise=0.01)]
    twin = cell("flap", 0.301, noise=0.01)
    lines, costs = lines_of(*cells, twin), {"wanda_sp": 0.58501, "gprune": 0.58543, "flap": 0.58520}
    by_name = {("r", method): cost for method, cost in costs.items()}
    models = options(lines, ["c"], by_name)
    assert {option.line.method: option.front for option in models} == {"wanda_sp": False, "gprune": True, "flap": True}
    assert cheapest(models, 2.0).line.method == "gprune"
    by_name["r", "gprune"] = 0.586
    # dearer and within noise of a cheaper one
    assert {option.line.method for option in options(lines, ["c"], by_name) if option.front} == {"flap"}
    for gap, claimed in ((0.004, True), (0.006, False)):
        assert bool(signs(*cells[:2], replace(cells[2], retention=0.5 + gap))) is claimed


def test_a_claim_of_the_paper_is_not_judged_before_every_method_of_it_is_run():
    losses, claim = (
        {"gprune": {0: WINDOWS + 0.1}, "flap": {0: WINDOWS + 0.5}},
        Claim("", "", "gprune", ("flap", "fang")),
    )
    case = Case("m", 0.5, "c", False, losses)
    # of three seeds one is there
    waits = replace(case, losses=losses | {"fang": {0: WINDOWS}}, missing=frozenset({"fang"}))
    assert judge_claim(claim, [case]).counts == "1 better, 0 within noise, 0 worse"
    assert judge_claim(claim, [case, waits]).outcome == UNKNOWN and not judge_claim(claim, [case, waits]).cases
    assert waits.difference("gprune", "flap") is not None and waits.difference("gprune", "fang") is None


def study_rows(**levels):
    random = np.random.default_rng(3)
    return [
        StudyRow({}, method, 0.5, seed, "r", {"ppl:c": value * (1 + 0.001 * random.normal())}, {"ppl:c": 1.0}, 0.5)
        for method, value in levels.items()
        for seed in range(3)
    ]


def test_rows_of_a_study_share_a_star_within_noise_and_have_none_while_one_is_not_run():
    rows = study_rows(flap=41.0, gprune=40.0, fang=40.01)
    # paired over the seeds, in which the rows' own errors of 1 cancel
    assert studies.mark_settings(studies.settings(rows), "ppl:c") == {1: BEST, 2: BEST, 0: SECOND}
    # of one seed the rows' own errors decide: 1 of 40 and of 42
    first_seed = studies.settings(study_rows(flap=42.0, gprune=40.0)[::3])
    assert set(studies.mark_settings(first_seed, "ppl:c").values()) == {BEST}
    table = studies.settings([*rows, StudyRow({}, "wanda_sp", 0.5, 0, reason=NOT_RUN)])
    assert studies.mark_settings(table, "ppl:c") == {}
    assert list(studies.unfair_blocks(table).values()) == ["1 of the rows is not run yet"]
    assert studies.mark_settings(studies.settings([*rows, StudyRow({}, "osscar", 0.5, 0, reason="too few")]), "ppl:c")


def test_models_pruned_from_different_dense_models_are_not_comparable():
    first, second = (comparison.lines(comparison.rows([cell("gprune", 0.2, run=run)]))[0] for run in "ab")
    assert verdict.is_comparable(first, second, "c")
    other = replace(second.rows[0], cells={"c": replace(second.cell("c"), model="another")})
    assert not verdict.is_comparable(first, replace(second, rows=(other,)), "c")
