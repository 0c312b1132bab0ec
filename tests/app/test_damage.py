"""A result that is damaged costs the cards that draw it, and never a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_driver import PAGES, on, opened
from synthetic_run import a_study, write_run

from gprune.study import EvaluationSettings
from gprune.study.methods import DEFAULT

pytestmark = pytest.mark.slow
SHOWN = {
    # a selection is held against the sizes of the model, on every page that marks one
    "shape": (
        "inspection",
        "reliability",
        "overview",
        "rank_drift",
        "module_agreement",
        "pruning_decisions",
        "by_hand",
        "comparison",
        "speed_export",
        "guide",
        "neuron_map",
        "mask_atlas",
    ),
    "tokens": ("calibration_data",),
    "statistics": ("calibration_data", "neuron_map"),
    "groups": ("module_agreement",),
    "scores": ("overview", "rank_drift", "reliability", "inspection", "guide", "mask_atlas"),
    "drift": (
        "inspection",
        "overview",
        "rank_drift",
        "reliability",
        "pruning_decisions",
        "calibration_data",
        "guide",
        "mask_atlas",
    ),
    "partition": (
        "rank_drift",
        "module_agreement",
        "reliability",
        "pruning_decisions",
        "guide",
        "neuron_map",
        "mask_atlas",
    ),
    "modules": ("overview", "reliability", "guide"),
    "masks": (
        "inspection",
        "overview",
        "reliability",
        "pruning_decisions",
        "comparison",
        "speed_export",
        "guide",
        "mask_atlas",
    ),
    "perplexity": ("overview", "comparison", "guide"),
    "accuracy": ("speed_export",),
    "answers": ("flipped_questions",),
    "questions": ("flipped_questions",),
    "speed": ("speed_export",),
    "agreement": ("overview", "module_agreement", "guide"),
    "adapted": ("overview", "inspection", "guide"),
}
"""the pages that draw a kind of result"""


@pytest.mark.parametrize("kind", SHOWN)
def test_a_damaged_result_costs_its_cards_only(cache: Path, kind: str) -> None:
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa",), speed="cpu")
    write_run(cache, study=a_study(methods=(*DEFAULT, "fang"), evaluation=evaluation))
    for folder in (cache / kind).iterdir():
        arrays = [path for path in folder.iterdir() if path.suffix == ".npy"]
        (arrays or [folder / "manifest.json"])[0].unlink()
    app = opened()
    told = {page: [error.value for error in on(app, page).error] for page in PAGES}
    assert {page for page, errors in told.items() if errors} == set(SHOWN[kind])
    assert all("no whole result" in error for errors in told.values() for error in errors)
