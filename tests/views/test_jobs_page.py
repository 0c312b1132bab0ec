"""Small things of the jobs page: no empty grid, no remaining time of zero."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from waiting import limit

from gprune.views.frame import live


def _no_stages(active: bool) -> None:
    import pandas as pd

    from gprune.views.jobs import page as jobs

    jobs._times(pd.DataFrame({"stage": [], "seconds": [], "state": []}), active)


@pytest.mark.parametrize(("active", "sentence"), [(True, "No stage has begun"), (False, "It ended before")])
def test_a_job_without_stages_gets_a_sentence(active: bool, sentence: str) -> None:
    app = AppTest.from_function(_no_stages, args=(active,), default_timeout=limit(60)).run()
    assert app.info[0].value.startswith(sentence) and not app.dataframe


@pytest.mark.parametrize(("eta", "told"), [(None, False), (0.3, False), (12.0, True)])
def test_a_remaining_time_of_nothing_is_not_told(eta: float | None, told: bool) -> None:
    progress: Any = SimpleNamespace(stage="drift", total=4, done=3, elapsed=5.0, eta=eta)
    assert ("left in this step" in live._now(progress)) is told
