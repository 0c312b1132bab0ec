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
    assert any("retained fractions differ" in reason for reason in comparison.obstacles(table)) is not called


def test_other_windows_or_another_model_call_no_winner() -> None:
    windows = comparison.rows([measured("gprune", 60), measured("flap", 90, length=2048)])
    assert (
        "measured in different ways (96 windows of 128 tokens; 96 windows of 2048 tokens)"
        in comparison.obstacles(windows)[0]
    )
    models = comparison.rows([measured("gprune", 60), measured("flap", 90, model="another")])
    assert "2 different dense models" in comparison.obstacles(models)[0]


def test_noise_adds_errors_in_quadrature() -> None:
    assert comparison.within_noise(
        measured("gprune", 60, standard_error=3.0), measured("flap", 65, standard_error=4.0)
    )
    assert not comparison.within_noise(
        measured("gprune", 60, standard_error=3.0), measured("flap", 65.1, standard_error=4.0)
    )


def test_undecided_is_about_the_two_best() -> None:
    close = comparison.rows([measured("gprune", 60), measured("flap", 61), measured("wanda_sp", 99)])
    clear = comparison.rows([measured("gprune", 60), measured("flap", 90), measured("wanda_sp", 91)])
    assert comparison.undecided(close, "wiki") and not comparison.undecided(clear, "wiki")


def test_long_table_gives_the_change_against_the_pinned_row() -> None:
    table = comparison.rows([measured("dense", 40), measured("gprune", 60), measured("flap", 80)])
    frame = comparison.long_table(table, ("run-a", "flap"), {"gprune": "GPrune"})
    np.testing.assert_allclose(frame["change against baseline"], [-0.5, -0.25, 0.0])
    assert frame["method"].tolist() == ["dense", "GPrune", "flap"]
    assert np.isnan(comparison.long_table(table, None, {})["change against baseline"]).all()
