"""When a page is drawn anew while a job computes, and what all sessions of a server share."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import a_study, write_run

from gprune.app.ui import frame, live, work
from gprune.pipeline import stages


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    """No session follows anything yet."""
    for known in (live._looks, live._followers):
        known.clear()
    yield
    for known in (live._looks, live._followers):
        known.clear()


@pytest.fixture
def two(tmp_path: Path) -> tuple[work.Situation, str, str]:
    """A run that is shown and one at work, whose first chart is not there yet."""
    shown = write_run(tmp_path)
    other = write_run(tmp_path, study=a_study(seed=1), stages="tokens", state="running")
    return work.look(str(tmp_path)), shown, other


def further(situation: work.Situation, name: str, **changes: object) -> work.Situation:
    """The same, with one run whose record says something else."""
    runs = [replace(run, record=run.record | changes) if run.name == name else run for run in situation.runs]
    return replace(situation, runs=runs)


def drawn_anew(before: work.Situation, now: work.Situation, whose: str | None, **given: float) -> bool:
    asked = {"ago": 0.0, "sessions": 1, "patience": 0.0} | given
    return live.due(live.Look(now, 0.0), whose, before.marks(whose), **asked)  # type: ignore[arg-type]


def test_a_stage_redraws_the_page_of_its_run_and_those_of_all_runs(
    two: tuple[work.Situation, str, str],
) -> None:
    before, shown, other = two
    run = before.run_named(other)
    assert run is not None
    now = further(before, other, stages=run.stages | {"one more": {"key": "0" * 32}})
    assert not drawn_anew(before, now, other, ago=live.SOONEST - 0.1), "it rests between two stages"
    assert drawn_anew(before, now, other, ago=live.SOONEST)
    assert drawn_anew(before, now, None, ago=live.SOONEST)
    assert not drawn_anew(before, now, shown, ago=3600.0), "its page shows nothing of the other run"
    assert not drawn_anew(before, now, other, ago=live.SOONEST, sessions=20)
    assert drawn_anew(before, now, other, ago=20 * live.REST_EACH, sessions=20)


def test_a_state_redraws_the_page_of_its_run_at_once_and_others_one_after_the_other(
    two: tuple[work.Situation, str, str],
) -> None:
    before, shown, other = two
    now = further(before, other, state="failed")
    assert drawn_anew(before, now, other, sessions=20, patience=19.0)
    assert drawn_anew(before, now, None, sessions=20, patience=19.0)
    assert not drawn_anew(before, now, shown, ago=18.9, sessions=20, patience=19.0)
    assert drawn_anew(before, now, shown, ago=19.0, sessions=20, patience=19.0)
    assert drawn_anew(before, now, shown), "who is alone waits for nobody"


def test_the_first_chart_is_drawn_at_once(two: tuple[work.Situation, str, str]) -> None:
    situation, shown, other = two
    run = situation.run_named(other)
    assert run is not None
    before = further(situation, other, stages={})
    now = further(situation, other, stages={stages.drift(run.graph).name: {"key": "0" * 32}})
    assert drawn_anew(before, now, other, sessions=20, patience=19.0)
    assert not drawn_anew(before, now, shown, ago=3600.0)


def test_one_look_serves_every_session_for_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    empty = work.Situation(str(tmp_path), [], [], [], "")
    monkeypatch.setattr(work, "look", lambda root: looks.append(root) or empty)
    moments = iter([0.0, 0.0, 0.5, 0.99, 1.0, 1.0, 1.5])
    monkeypatch.setattr(live.time, "monotonic", lambda: next(moments))
    found = [live.shared_look("here") for _ in range(5)]
    assert len(looks) == 2 and found[0] is found[1] is found[2] and found[3] is found[4] is not found[0]


def test_more_sessions_look_less_often_and_rest_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert live.poll(1) == live.POLL_SECONDS and live.poll(20) == 20 * live.POLL_EACH
    assert live.rest([]) == live.SOONEST and live.rest([], 20) == 20 * live.REST_EACH

    now = [0.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    assert live._following("first") == live._following("first") == 1
    assert live._following("second") == 2
    now[0] = live.GONE_SECONDS + 1
    assert live._following("second") == 1, "the first has closed its tab"


def test_what_lasts_is_not_searched_for_garbage_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "_counted", [0])
    # another test of this process may have settled most of it already
    gc.unfreeze()
    before = gc.get_freeze_count()
    try:
        assert frame.settle_memory() and gc.get_freeze_count() > before + 10_000
        assert not frame.settle_memory(), "nothing was loaded since"
        monkeypatch.setattr(frame, "_counted", [len(sys.modules) - frame.NEW_MODULES])
        assert frame.settle_memory()
    finally:
        gc.unfreeze()
