"""The table of perplexities, its winners, and when no winner may be called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gprune.analysis import comparison
from gprune.analysis.comparison import BEST, SECOND, Measurement


def measured(method: str, value: float, **changes: object) -> Measurement:
    kept = 1.0 if method == "dense" else 0.5
    base = Measurement("run-a", method, "wiki", value, 1.0, 96, 128, kept, 100, "model")
    return replace(base, **changes)


def test_the_dense_model_of_two_runs_is_shown_once_and_on_top() -> None:
    table = comparison.rows(
        [
            measured("gprune", 60),
            measured("dense", 40),
            measured("gprune", 70, run="run-b"),
            measured("dense", 40, run="run-b"),
        ]
    )
    assert [row.name for row in table] == [("run-a", "dense"), ("run-a", "gprune"), ("run-b", "gprune")]


def test_a_text_that_only_the_second_run_measured_joins_the_dense_row() -> None:
    table = comparison.rows([measured("dense", 40), measured("dense", 50, run="run-b", text="ptb")])
    assert len(table) == 1 and set(table[0].cells) == {"wiki", "ptb"}


def test_best_and_second_are_marked_among_the_pruned_models() -> None:
    table = comparison.rows(
        [measured("dense", 40), measured("gprune", 60), measured("flap", 90), measured("wanda_sp", 95)]
    )
    assert comparison.glyphs(table, "wiki") == {("run-a", "gprune"): BEST, ("run-a", "flap"): SECOND}


def test_a_lone_pruned_model_wins_nothing() -> None:
    assert comparison.glyphs(comparison.rows([measured("dense", 40), measured("gprune", 60)]), "wiki") == {}


def test_equal_values_share_the_mark_and_infinity_gets_none() -> None:
    table = comparison.rows(
        [measured("gprune", 60), measured("flap", 60), measured("wanda_sp", float("inf"))]
    )
    assert comparison.glyphs(table, "wiki") == {("run-a", "gprune"): BEST, ("run-a", "flap"): BEST}


@pytest.mark.parametrize(("gap", "called"), [(0.005, True), (0.0051, False)])
def test_no_winner_beyond_half_a_percent_of_the_budget(gap: float, called: bool) -> None:
    table = comparison.rows(
        [measured("gprune", 60, retention=0.5), measured("flap", 90, retention=0.5 + gap - 1e-12)]
    )
    assert bool(comparison.glyphs(table, "wiki")) is called
    assert any("retentions differ" in reason for reason in comparison.obstacles(table)) is not called


def test_a_run_that_read_other_windows_keeps_its_own_dense_row() -> None:
    items = [
        measured("dense", 40),
        measured("dense", 30, run="run-b", windows=4),
        measured("dense", 40, run="c"),
    ]
    table = comparison.rows(items)
    assert [(row.run, row.cells["wiki"].perplexity) for row in table] == [("run-a", 40), ("run-b", 30)]


def test_other_windows_or_another_model_call_no_winner() -> None:
    windows = comparison.rows([measured("gprune", 60), measured("flap", 90, length=2048)])
    assert (
        "measured in different ways (96 windows of 128 tokens; 96 windows of 2048 tokens)"
        in comparison.obstacles(windows)[0]
    )
    models = comparison.rows([measured("gprune", 60), measured("flap", 90, model="another")])
    assert "2 different dense models" in comparison.obstacles(models)[0]


def on_windows(method: str, losses: np.ndarray, **changes: object) -> Measurement:
    value = float(np.exp(losses.mean()))
    error = value * float(losses.std(ddof=1)) / np.sqrt(len(losses))
    known = {"standard_error": error, "windows": len(losses), "losses": losses, "content": "text 1"}
    return measured(method, value, **(known | changes))


def two_methods(gain: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Losses that vary by 0.5 nats from window to window and by 0.01 between the methods."""
    random = np.random.default_rng(0)
    windows = 4.0 + 0.5 * random.normal(size=96)
    return windows, windows + gain + 0.01 * random.normal(size=96)


def test_the_difference_of_two_methods_is_paired_over_their_windows() -> None:
    good, bad = two_methods()
    found = comparison.difference(on_windows("flap", bad), on_windows("gprune", good))
    each = [second - first for first, second in zip(good, bad, strict=True)]
    mean = sum(each) / 96
    spread = sum((value - mean) ** 2 for value in each) / 95
    assert found.paired
    assert found.change == pytest.approx(np.exp(mean) - 1, rel=1e-12)
    assert found.error == pytest.approx(np.exp(mean) * np.sqrt(spread / 96), rel=1e-12)
    assert found.change == pytest.approx(np.exp(bad.mean()) / np.exp(good.mean()) - 1)


def test_a_difference_within_the_methods_own_errors_is_called_when_the_windows_agree_on_it() -> None:
    good, bad = two_methods()
    first, second = on_windows("gprune", good), on_windows("flap", bad)
    assert abs(first.perplexity - second.perplexity) < first.standard_error
    assert not comparison.undecided(comparison.rows([first, second]), "wiki")
    elsewhere = on_windows("flap", bad, content="text 2")
    assert comparison.undecided(comparison.rows([first, elsewhere]), "wiki")


@pytest.mark.parametrize(
    "changes",
    [{"content": "text 2"}, {"length": 2048}, {"losses": np.empty(0)}, {"text": "ptb"}, {"windows": 95}],
)
def test_other_windows_fall_back_to_errors_in_quadrature(changes: dict[str, object]) -> None:
    good, bad = two_methods()
    first, second = on_windows("gprune", good), replace(on_windows("flap", bad), **changes)
    found = comparison.difference(second, first)
    shares = (first.standard_error / first.perplexity, second.standard_error / second.perplexity)
    assert not found.paired
    assert found.nats_error == pytest.approx(float(np.hypot(*shares)), rel=1e-12)
    assert found.change == pytest.approx(second.perplexity / first.perplexity - 1)


def test_a_text_of_unknown_content_is_paired_within_a_run_only() -> None:
    good, bad = two_methods()
    first = on_windows("gprune", good, content="")
    assert comparison.same_windows(first, on_windows("flap", bad, content=""))
    assert not comparison.same_windows(first, on_windows("flap", bad, content="", run="run-b"))


@pytest.mark.parametrize(("nats", "close"), [(0.02, True), (0.0201, False), (-0.02, True), (-0.0201, False)])
def test_two_standard_errors_are_too_close_to_call(nats: float, close: bool) -> None:
    assert comparison.Difference(nats, 0.01, True).close is close


def test_one_window_and_overflow_decide_nothing() -> None:
    first, second = measured("gprune", 60, windows=1), measured("flap", 90, windows=1)
    lone = [replace(item, losses=np.array([np.log(item.perplexity)])) for item in (first, second)]
    assert comparison.difference(*lone).close and comparison.difference(*lone).paired
    infinite = measured("flap", float("inf"), standard_error=float("inf"))
    assert comparison.difference(infinite, infinite).close
    assert comparison.difference(infinite, measured("gprune", 60)).change == float("inf")


def test_texts_measured_on_other_windows_than_the_pinned_row_are_named() -> None:
    good, bad = two_methods()
    table = comparison.rows(
        [
            on_windows("gprune", good),
            on_windows("flap", bad),
            on_windows("gprune", good, text="ptb"),
            on_windows("flap", bad, text="ptb", content="text 2"),
        ]
    )
    assert comparison.unpaired(table, table[0]) == ["ptb"]


def test_undecided_is_about_the_two_best() -> None:
    close = comparison.rows([measured("gprune", 60), measured("flap", 61), measured("wanda_sp", 99)])
    clear = comparison.rows([measured("gprune", 60), measured("flap", 90), measured("wanda_sp", 91)])
    assert comparison.undecided(close, "wiki") and not comparison.undecided(clear, "wiki")


def test_long_table_gives_the_change_against_the_pinned_row() -> None:
    table = comparison.rows([measured("dense", 40), measured("gprune", 60), measured("flap", 80)])
    frame = comparison.long_table(table, ("run-a", "flap"), {"gprune": "GPrune"})
    np.testing.assert_allclose(frame["change against baseline"], [-0.5, -0.25, 0.0])
    assert frame["method"].tolist() == ["dense", "GPrune", "flap"]
    # 60 against 80, each with an error of 1: the errors' shares in quadrature, carried to the ratio
    assert frame["standard error of the change"][1] == pytest.approx(0.75 * np.hypot(1 / 60, 1 / 80))
    assert frame["paired"].tolist() == [False, False, False]
    assert np.isnan(comparison.long_table(table, None, {})["change against baseline"]).all()
