"""Every page is drawn from a cache that cannot be written, and tries to write nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_driver import PAGES, on, opened, words
from synthetic_run import a_study, folder_of, write_run
from unwritable import unwritable

from gprune.pipeline import stages
from gprune.study import EvaluationSettings

pytestmark = pytest.mark.slow


def test_every_page_is_drawn_and_nothing_is_written(cache: Path) -> None:
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa",), speed="cpu")
    write_run(cache, study=a_study(evaluation=evaluation))
    with unwritable(cache) as tried:
        app = opened()
        for page in PAGES:
            assert not on(app, page).error, page
    assert tried == []


def test_damage_is_told_on_the_page_and_left_where_it_is(cache: Path) -> None:
    name = write_run(cache)
    path = folder_of(cache, name, stages.drift) / "magnitude.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with unwritable(cache) as tried:
        app = on(opened(), "rank_drift")
        told = "\n".join(one.value for one in app.error)
    assert "magnitude.npy does not hold what was written" in told.replace("\\", "")
    assert "run the study again, it is made anew and finished stages are kept" in told
    assert tried == [] and path.exists() and words(app)
