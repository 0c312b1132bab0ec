"""Summaries of module agreement."""

from __future__ import annotations

import numpy as np
import pytest

from gprune.analysis import agreement
from gprune.records import Agreement

NAMES = ("A-B against A-C", "A-B against B-C", "control: A-B, another seed")


def a_record() -> Agreement:
    ari = np.array([[0.2, 0.4], [0.4, 0.8], [0.9, 0.9]])
    return Agreement(NAMES, ari, ari + 0.1)


def test_controls_do_not_enter_the_mean() -> None:
    assert agreement.mean_substitution(a_record()) == pytest.approx((0.45, 0.15))


def test_a_record_of_controls_alone_has_no_mean() -> None:
    record = Agreement(NAMES[2:], np.array([[0.9]]), np.array([[0.9]]))
    assert agreement.mean_substitution(record) is None
    assert agreement.headline(record) == "Agreement of the modules, layer by layer"


def test_summary_gives_mean_and_deviation_over_layers() -> None:
    table = agreement.summary(a_record())
    np.testing.assert_allclose(table["mean ARI"], [0.3, 0.6, 0.9])
    np.testing.assert_allclose(table["s.d. of ARI"], [0.1, 0.2, 0.0], atol=1e-12)
    np.testing.assert_allclose(table["mean overlap"], [0.4, 0.7, 1.0])


def test_one_layer_has_no_spread() -> None:
    assert agreement.spread(np.array([0.4])) == (0.4, 0.0)


def test_layer_table_is_long() -> None:
    table = agreement.layer_table(a_record())
    assert len(table) == 6 and table["layer"].tolist() == [0, 1] * 3
    assert table["ARI"].tolist() == [0.2, 0.4, 0.4, 0.8, 0.9, 0.9]
    assert "0.45 when one calibration text is replaced" in agreement.headline(a_record())
    assert "0.90 when only the seed changes" in agreement.headline(a_record())
