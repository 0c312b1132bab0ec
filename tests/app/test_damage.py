"""What is damaged, odd or closed to writing costs the cards that draw it, or one run, and never a page."""

import pytest
from app_driver import PAGES, on, open_page, opened, words
from synthetic_run import a_study, folder_of, write_run
from unwritable import unwritable

from gprune.pipeline import stages
from gprune.study import EvaluationSettings
from gprune.study.methods import DEFAULT

pytestmark = pytest.mark.slow
SHOWN = {
    "tokens": "card calibration inspector",
    "drift": "home drift agreement decisions calibration atlas",
    "partition": "drift agreement rasa decisions map atlas",
    "masks": "inspector home rasa agreement decisions compare map atlas",
    "answers": "questions",
    "open_answers": "questions",
    "speed": "speed",
}
"""the pages that draw a kind of result"""


KINDS = [name if name == "drift" else pytest.param(name, marks=pytest.mark.long) for name in SHOWN]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_result_costs_its_cards_only_and_nothing_is_written(cache, kind):
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa",), open_questions=True, speed="cpu")
    write_run(cache, study=a_study(methods=(*DEFAULT, "fang"), evaluation=evaluation))
    for folder in (cache / kind).iterdir():
        arrays = [path for path in folder.iterdir() if path.suffix == ".npy"]
        (arrays or [folder / "meta.json"])[0].unlink()
    with unwritable(cache) as tried:
        app = opened()
        message = {page: [error.value for error in on(app, page).error] for page in PAGES}
    assert tried == []
    assert {page for page, errors in message.items() if errors} == set(SHOWN[kind].split())
    assert all("no complete result" in error for errors in message.values() for error in errors)


def test_damage_is_told_on_the_page_and_left_where_it_is(cache, name):
    path = folder_of(cache, name, stages.drift) / "magnitude.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with unwritable(cache) as tried:
        app = open_page("drift")
        message = "\n".join(item.value for item in app.error)
    assert "magnitude.npy does not hold what was written" in message.replace("\\", "")
    assert "run the study again to recompute it, finished stages are kept" in message
    assert tried == [] and path.exists() and words(app)
