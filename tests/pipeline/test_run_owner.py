"""One process owns a run's record; whoever else starts, is stopped or dies, the record tells the truth."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_study
from run_starters import Starters, contents, starters
from waiting import limit, wait_for

from gprune import pipeline
from gprune.pipeline import runs
from gprune.store import Store
from gprune.study import from_dict, run_name

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("owner")
    return tiny_study.made(folder)


@pytest.fixture(scope="module")
def undisturbed(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("undisturbed")
    pipeline.run(from_dict(values), Store(cache), lambda *_: None)
    return contents(cache)


@pytest.fixture
def several(values: dict[str, Any], tmp_path: Path) -> Iterator[Starters]:
    with starters(tmp_path / "starters", values, tmp_path / "cache") as made:
        yield made


def record(made: Starters, values: dict[str, Any]) -> dict[str, Any]:
    found = runs.read(Store(made.cache), run_name(from_dict(values)))
    assert found is not None
    return found


@pytest.mark.long
def test_of_four_starters_three_are_stopped_and_the_record_ends_done(several, values, undisturbed):
    first = several.start(held="partition")
    several.wait_until("computing.partition", first)
    others = [several.start() for _ in range(3)]
    for other in others:
        several.wait_until("waiting.partition", other)
    assert record(several, values)["owner"]["pid"] == first.pid
    several.stop(others[0], signal.SIGINT)
    found = record(several, values)
    assert (found["state"], found["owner"]["pid"]) == ("running", first.pid)
    # the owner dies: the record is taken over by one that waits for its stage
    several.stop(first, signal.SIGKILL)
    wait_for(lambda: (record(several, values)["owner"] or {}).get("pid") in {one.pid for one in others[1:]})
    several.stop(others[1], signal.SIGTERM)
    assert others[2].wait(limit(60)) == 0, (several.folder / "log.txt").read_text()
    found = record(several, values)
    assert (found["state"], found["error"], found["owner"]) == ("done", None, None)
    assert found["result"]["perplexity"] and set(found["expected"]) == set(found["stages"])
    assert contents(several.cache) == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_starter_that_is_stopped_on_its_way_is_told_as_such_and_gone_on_with(several, values, how):
    assert several.start("masks").wait(limit(60)) == 0
    before = record(several, values)
    assert before["state"] == "done" and before["until"] == "masks"
    # the second starts to compute what the first has no result of any more, and is stopped on its way
    again = several.start("masks", held="drift")
    assert again.wait(limit(60)) == 0 and record(several, values) == before
    Store(several.cache).discard("drift", before["stages"]["drift"]["key"])
    third = several.start("masks", held="drift")
    several.wait_until("computing.drift", third)
    assert record(several, values)["state"] == "running"
    several.stop(third, how)
    found = record(several, values)
    assert runs.standing(found) == ("interrupted" if how == signal.SIGKILL else "cancelled")
    several.go()
    assert several.start("masks").wait(limit(60)) == 0
    assert record(several, values)["state"] == "done"


@pytest.mark.long
def test_a_starter_that_wants_less_ends_before_the_owner_and_is_not_heard(several, values):
    owner = several.start("masks", held="partition")
    several.wait_until("computing.partition", owner)
    assert several.start("drift").wait(limit(60)) == 0
    found = record(several, values)
    assert (found["state"], found["until"], found["owner"]["pid"]) == ("running", "masks", owner.pid)
    several.go()
    assert owner.wait(limit(60)) == 0
    assert record(several, values)["state"] == "done"
