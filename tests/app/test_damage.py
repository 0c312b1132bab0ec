"""A damaged result costs the cards that draw it, and a cache that cannot be written no page."""

import pytest
from app_driver import PAGES, on, open_page, opened, words
from synthetic_run import a_study, folder_of, write_run
from unwritable import unwritable

from gprune.pipeline import stages
from gprune.study import EvaluationSettings
from gprune.study.methods import DEFAULT

pytestmark = pytest.mark.slow
SHOWN = {
    "shape": "inspection reliability overview rank_drift module_agreement pruning_decisions by_hand "
    "comparison speed_export guide neuron_map mask_atlas",
    "tokens": "calibration_data",
    "statistics": "calibration_data neuron_map",
    "groups": "module_agreement",
    "scores": "overview rank_drift reliability inspection guide mask_atlas",
    "drift": "inspection overview rank_drift reliability pruning_decisions calibration_data guide mask_atlas",
    "partition": "rank_drift module_agreement reliability pruning_decisions guide neuron_map mask_atlas",
    "modules": "overview reliability guide",
    "masks": "inspection overview reliability pruning_decisions comparison speed_export guide mask_atlas",
    "perplexity": "overview comparison guide",
    "accuracy": "speed_export",
    "answers": "flipped_questions",
    "questions": "flipped_questions",
    "speed": "speed_export",
    "agreement": "overview module_agreement guide",
    "adapted": "overview inspection guide",
}
"""the pages that draw a kind of result"""


KINDS = [name if name in ("drift", "masks") else pytest.param(name, marks=pytest.mark.long) for name in SHOWN]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_result_costs_its_cards_only(cache, kind):
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa",), speed="cpu")
    write_run(cache, study=a_study(methods=(*DEFAULT, "fang"), evaluation=evaluation))
    for folder in (cache / kind).iterdir():
        arrays = [path for path in folder.iterdir() if path.suffix == ".npy"]
        (arrays or [folder / "manifest.json"])[0].unlink()
    app = opened()
    told = {page: [error.value for error in on(app, page).error] for page in PAGES}
    assert {page for page, errors in told.items() if errors} == set(SHOWN[kind].split())
    assert all("no whole result" in error for errors in told.values() for error in errors)


def test_every_page_is_drawn_and_nothing_is_written(cache):
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa",), speed="cpu")
    write_run(cache, study=a_study(evaluation=evaluation))
    with unwritable(cache) as tried:
        app = opened()
        for page in PAGES:
            assert not on(app, page).error, page
    assert tried == []


def test_damage_is_told_on_the_page_and_left_where_it_is(cache):
    name = write_run(cache)
    path = folder_of(cache, name, stages.drift) / "magnitude.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with unwritable(cache) as tried:
        app = open_page("rank_drift")
        told = "\n".join(one.value for one in app.error)
    assert "magnitude.npy does not hold what was written" in told.replace("\\", "")
    assert "run the study again, it is made anew and finished stages are kept" in told
    assert tried == [] and path.exists() and words(app)
