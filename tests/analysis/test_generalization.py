"""Where methods stand at home and abroad, against the dense model window by window."""

from types import SimpleNamespace

import numpy as np
import pytest

from gprune.analysis import comparison, generalization
from gprune.analysis.paired_test import Measurement

TEXTS = {"split": "home", "other split": "home", "novel": "abroad", "own": ""}


def cell(method, text, losses, run="run", **more):
    losses = np.asarray(losses, dtype=float)
    values = {"perplexity": float(np.exp(losses.mean())), "standard_error": 1.0, "windows": len(losses)}
    about = {"length": 128, "retention": 0.5, "parameters": 1, "model": "model", "content": "same"}
    return Measurement(run=run, method=method, text=text, losses=losses, **(values | about | more))


def standing(text):
    place = TEXTS[text]
    return SimpleNamespace(related={"same": "A"} if place == "home" else {}, unseen=place == "abroad")


def placed(cells, groups=None):
    lines = comparison.lines(comparison.rows(cells), groups)
    home, abroad = generalization.home_and_unseen(
        standing, comparison.texts(row for line in lines for row in line.rows)
    )
    return {one.line.name: one for one in generalization.places(lines, home, abroad)}


def dense(run="run"):
    return [cell("dense", text, [1.0, 2.0, 4.0], run) for text in TEXTS]


def test_texts_are_at_home_abroad_or_neither():
    assert generalization.home_and_unseen(standing, TEXTS) == (["split", "other split"], ["novel"])
    assert generalization.home_and_unseen(lambda _: None, TEXTS) == ([], [])


def test_the_change_is_the_mean_over_texts_of_what_windows_lose():
    found = placed(
        [
            *dense(),
            cell("flap", "split", [1.1, 2.3, 4.2]),
            cell("flap", "other split", [1.4, 2.4, 4.4]),
            cell("flap", "novel", [2.0, 2.5, 4.6]),
        ]
    )["run", "flap"]
    assert found.home.nats == pytest.approx((0.2 + 0.4) / 2)
    assert 1 + found.home.change == pytest.approx(np.exp(0.3))
    error = np.std([0.1, 0.3, 0.2], ddof=1) / np.sqrt(3)
    assert found.home.nats_error == pytest.approx(error / 2)
    assert found.abroad.nats == pytest.approx(0.7) and found.gap == pytest.approx(0.4)


def test_what_lacks_a_text_or_its_dense_windows_has_no_place():
    cells = [*dense(), cell("flap", "split", [1.1, 2.3, 4.2]), cell("flap", "novel", [2.0, 2.5, 4.6])]
    full = [cell("fang", text, [2.0, 3.0, 5.0]) for text in TEXTS]
    other = [cell("wanda_sp", text, [2.0, 3.0, 5.0], content="another") for text in TEXTS]
    assert set(placed(cells + full + other)) == {("run", "fang")}


def test_seeds_are_averaged_and_their_spread_counts():
    cells = dense("a") + dense("b")
    for run, more in (("a", 0.1), ("b", 0.3)):
        cells += [cell("flap", text, np.array([1.0, 2.0, 4.0]) + more, run) for text in TEXTS]
    found = placed(cells, {"a": ("study", 0), "b": ("study", 1)})
    (one,) = found.values()
    assert one.abroad.nats == pytest.approx(0.2)
    assert one.abroad.nats_error == pytest.approx(np.std([0.1, 0.3], ddof=1) / np.sqrt(2))
    table = generalization.generalization_table([one], {one.line.name: "FLAP"})
    assert table["abroad over home"][0] == pytest.approx(1.0) and table["method"][0] == "FLAP"
    assert table["repair"].tolist() == [""]
    given = {one.line.name: ("A and B", "least squares on A")}
    told = generalization.generalization_table([one], {one.line.name: "FLAP"}, given)
    assert told[["masks from", "repair"]].to_numpy().tolist() == [["A and B", "least squares on A"]]
