"""The table of perplexities, its winners, and when no winner may be called."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gprune.analysis import comparison, paired_test, verdict
from gprune.analysis.paired_test import Measurement


def measured(method, value, **changes):
    retention = 1.0 if method == "dense" else 0.5
    base = Measurement("run-a", method, "wiki", value, 1.0, 96, 128, retention, 100, "model")
    return replace(base, **changes)


def test_the_dense_model_of_several_runs_is_one_row():
    pairs = (("gprune", 60, "run-a"), ("dense", 40, "run-a"), ("gprune", 70, "run-b"), ("dense", 40, "run-b"))
    table = comparison.rows([measured(method, value, run=run) for method, value, run in pairs])
    assert [row.name for row in table] == [("run-a", "dense"), ("run-a", "gprune"), ("run-b", "gprune")]
    table = comparison.rows([measured("dense", 40), measured("dense", 50, run="run-b", text="ptb")])
    assert len(table) == 1 and set(table[0].cells) == {"wiki", "ptb"}
    items = [measured("dense", 40), measured("dense", 30, run="run-b", windows=4), measured("dense", 40, run="c")]
    table = comparison.rows(items)
    assert [(row.run, row.cells["wiki"].perplexity) for row in table] == [("run-a", 40), ("run-b", 30)]


def test_other_windows_or_another_model_call_no_winner():
    windows = comparison.rows([measured("gprune", 60), measured("flap", 90, length=2048)])
    words = "measured in different ways (96 windows of 128 tokens; 96 windows of 2048 tokens)"
    assert words in verdict.obstacles(windows)[0]
    models = comparison.rows([measured("gprune", 60), measured("flap", 90, model="another")])
    assert "2 different dense models" in verdict.obstacles(models)[0]


def on_windows(method, losses, **changes):
    value = float(np.exp(losses.mean()))
    error = value * float(losses.std(ddof=1)) / np.sqrt(len(losses))
    values = {"standard_error": error, "windows": len(losses), "losses": losses, "content": "text 1"}
    return measured(method, value, **(values | changes))


def two_methods(gain=0.02):
    """Losses that vary by 0.5 nats from window to window and by 0.01 between the methods."""
    random = np.random.default_rng(0)
    windows = 4.0 + 0.5 * random.normal(size=96)
    return windows, windows + gain + 0.01 * random.normal(size=96)


def test_the_difference_of_two_methods_is_paired_over_their_windows():
    good, bad = two_methods()
    difference = paired_test.difference(on_windows("flap", bad), on_windows("gprune", good))
    each = [second - first for first, second in zip(good, bad, strict=True)]
    mean = sum(each) / 96
    spread = sum((value - mean) ** 2 for value in each) / 95
    assert difference.paired
    assert difference.change == pytest.approx(np.exp(mean) - 1, rel=1e-12)
    assert difference.error == pytest.approx(np.exp(mean) * np.sqrt(spread / 96), rel=1e-12)
    assert difference.change == pytest.approx(np.exp(bad.mean()) / np.exp(good.mean()) - 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"windows": 95}, "95 windows of 128 tokens against 96 windows of 128 tokens"),
        ({"length": 2048}, "96 windows of 2048 tokens against 96 windows of 128 tokens"),
        ({"losses": np.empty(0)}, "the losses of single windows are not known"),
        ({"content": "text 2"}, "another text of this name, or another tokenizer"),
    ],
)
def test_other_windows_fall_back_to_errors_in_quadrature_and_have_a_reason(changes, reason):
    good, bad = two_methods()
    first, second = on_windows("gprune", good), replace(on_windows("flap", bad), **changes)
    difference = paired_test.difference(second, first)
    shares = (first.standard_error / first.perplexity, second.standard_error / second.perplexity)
    assert not difference.paired
    assert difference.nats_error == pytest.approx(float(np.hypot(*shares)), rel=1e-12)
    assert difference.change == pytest.approx(second.perplexity / first.perplexity - 1)
    pinned, other = comparison.lines(comparison.rows([first, second]))
    assert comparison.change(other, pinned, "wiki") == reason == paired_test.why_unpaired(second, first)
    assert comparison.incomparable_methods([pinned, other], pinned) == {("wiki", reason): ["flap"]}


def test_a_text_of_unknown_content_is_paired_within_a_run_only():
    good, bad = two_methods()
    first = on_windows("gprune", good, content="")
    assert paired_test.same_windows(first, on_windows("flap", bad, content=""))
    assert not paired_test.same_windows(first, on_windows("flap", bad, content="", run="run-b"))


def test_one_window_and_overflow_decide_nothing():
    first, second = measured("gprune", 60, windows=1), measured("flap", 90, windows=1)
    lone = [replace(item, losses=np.array([np.log(item.perplexity)])) for item in (first, second)]
    assert paired_test.difference(*lone).close and paired_test.difference(*lone).paired
    infinite = measured("flap", float("inf"), standard_error=float("inf"))
    assert paired_test.difference(infinite, infinite).close
    assert paired_test.difference(infinite, measured("gprune", 60)).change == float("inf")


def test_long_table_gives_the_change_against_the_pinned_row():
    table = comparison.rows([measured("dense", 40), measured("gprune", 60), measured("flap", 80)])
    frame = comparison.long_table(table, ("run-a", "flap"), {"gprune": "GPrune"})
    np.testing.assert_allclose(frame["change against baseline"], [-0.5, -0.25, 0.0])
    assert frame["method"].tolist() == ["dense", "GPrune", "flap"]
    # 60 against 80, each with an error of 1: the errors' shares in quadrature, carried to the ratio
    assert frame["standard error of the change"][1] == pytest.approx(0.75 * np.hypot(1 / 60, 1 / 80))
    assert frame["paired"].tolist() == [False, False, False]
    assert np.isnan(comparison.long_table(table, None, {})["change against baseline"]).all()


def seeded(runs=3):
    """GPrune and FLAP of runs that differ in their seed only, and the dense model of the first."""
    random, (base, _) = np.random.default_rng(1), two_methods()
    items = [on_windows("dense", base, run="run 0")]
    for seed in range(runs):
        for method, level in (("gprune", 0.1), ("flap", 0.15)):
            losses = base + level + 0.01 * random.normal() + 0.01 * random.normal(size=96)
            items.append(on_windows(method, losses, run=f"run {seed}"))
    return comparison.rows(items), {f"run {seed}": ("study", seed) for seed in range(runs)}


def test_runs_that_differ_in_their_seed_are_one_line_with_mean_and_spread():
    table, groups = seeded()
    dense, gprune, flap = comparison.lines(table, groups)
    assert (dense.seeds, gprune.seeds, flap.seeds) == ((0,), (0, 1, 2), (0, 1, 2))
    values = [row.cells["wiki"].perplexity for row in table if row.method == "gprune"]
    mean = sum(values) / 3
    assert gprune.mean("wiki") == pytest.approx(mean)
    deviation = (sum((value - mean) ** 2 for value in values) / 2) ** 0.5
    assert gprune.spread("wiki") == pytest.approx(deviation)
    # of three seeds the quantile of t is 4.303
    assert gprune.margin("wiki") == pytest.approx(4.3027 * deviation / 3**0.5, rel=1e-4)
    assert np.isnan(dense.spread("wiki")) and dense.margin("wiki") == table[0].cells["wiki"].margin
    assert len(comparison.lines(table)) == len(table) == 7


def test_a_difference_over_seeds_pairs_the_seeds_and_adds_their_error_to_the_windows():
    table, groups = seeded()
    dense, gprune, flap = comparison.lines(table, groups)
    difference = comparison.change(flap, gprune, "wiki")
    assert isinstance(difference, paired_test.Difference)
    of_flap, of_gprune = flap.by_seed("wiki"), gprune.by_seed("wiki")
    seeds = [of_flap[seed].losses - of_gprune[seed].losses for seed in range(3)]
    by_window = list(zip(*seeds, strict=True))
    of_windows = [sum(three) / 3 for three in by_window]
    of_seeds = [sum(three[seed] for three in by_window) / 96 for seed in range(3)]
    mean = sum(of_windows) / 96
    squares = sum((value - mean) ** 2 for value in of_windows) / 95 / 96
    squares += sum((value - mean) ** 2 for value in of_seeds) / 2 / 3
    assert difference.nats == pytest.approx(mean) and difference.nats_error == pytest.approx(squares**0.5)
    # the dense model has one run, which every seed is compared with
    against = comparison.change(gprune, dense, "wiki")
    assert isinstance(against, paired_test.Difference) and against.verdict == paired_test.WORSE
    nats = np.mean([cell.losses for cell in of_gprune.values()]) - two_methods()[0].mean()
    assert against.change == pytest.approx(np.exp(nats) - 1)


def test_seeds_that_do_not_meet_have_no_difference():
    table, groups = seeded(4)
    halves = {run: (f"half {seed // 2}", seed) for run, (_, seed) in groups.items()}
    first, second = (line for line in comparison.lines(table, halves) if line.method == "gprune")
    assert comparison.change(first, second, "wiki") == "no seed in common"


@pytest.mark.parametrize(
    ("nats", "error", "freedom", "words", "verdict"),
    [
        (-0.0315, 0.0021, 95, "−3.1 ± 0.4%", "better"),
        # ± 229.7 would hold 0, and a perplexity less 100 % or more
        (0.95, 0.32, 4.0, "+158.6% (+6.3 to +528.7%)", "worse"),
        (0.95, 0.4, 4.0, "+158.6% (−14.8 to +685.1%)", "within noise"),
        # even, but where ± and the verdict part
        (0.0982, 0.05, math.inf, "+10.3% (+0.0 to +21.7%)", "worse"),
        (0.0982, math.inf, 0, "+10.3%", "within noise"),
    ],
)
def test_the_interval_that_is_written_is_that_of_the_verdict(nats, error, freedom, words, verdict):
    difference = paired_test.Difference(nats, error, True, freedom)
    assert paired_test.in_percent(difference) == words and difference.verdict == verdict
    low, high = difference.interval
    assert (difference.verdict == "within noise") == (not (low > 0 or high < 0))
