"""Cancelled in every stage, at its beginning or within, a study ends with the results of one left alone."""

import re

import pytest
import tiny_study
from run_starters import contents

from gprune import pipeline
from gprune.pipeline import opened, runs
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.system.errors import Cancelled
from gprune.system.files import is_beside

METHODS = ("dense", "gprune", "flap", "gates", "wanda_sp", "fang", "osscar", "llm_pruner", "recommended")


class Stopper:
    """Stops a run once in each stage that it works on: at the first event, or at one that follows it."""

    def __init__(self, within=False, stops=True):
        self.within, self.stops = within, stops
        self.worked, self.stopped = [], []

    def __call__(self, stage, done, total, message):
        # what is reused, or was made on the way of another stage, tells its end alone
        begins = done == 0 and stage not in ("estimate", "download", "model")
        first = begins and stage not in self.worked
        self.worked += [stage] if first else []
        due = first if not self.within else not first and stage in self.worked and done < total
        if due and self.stops and stage not in self.stopped:
            self.stopped.append(stage)
            self.worked.remove(stage)
            raise Cancelled("stop")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cancelled")
    made = tiny_study.workshop(folder, questions=3)
    values = tiny_study.settings(made["model"], made["texts"], methods=list(METHODS))
    values["substitute"] = made["texts"][2]
    values["evaluation"] |= {"texts": [made["texts"][2]], "tasks": [made["questions"]]}
    values["choice"] = {"masks": ["flap", "fang"], "repairs": ["least_squares:both"], "sequences": 4}
    return from_dict(values)


@pytest.fixture(scope="module")
def undisturbed(study, tmp_path_factory):
    """The results of a run that nobody stops, and the stages that it worked on."""
    root, listener = tmp_path_factory.mktemp("undisturbed"), Stopper(stops=False)
    summary = pipeline.run(study, Store(root), listener)
    return contents(root), listener.worked, summary


@pytest.mark.long
@pytest.mark.longest
@pytest.mark.parametrize("within", [False, True], ids=["at its beginning", "within it"])
def test_a_run_is_cancelled_in_every_stage_and_ends_with_the_same_results(study, undisturbed, tmp_path, within):
    wanted, worked, summary = undisturbed
    store, stopper = Store(tmp_path), Stopper(within)
    ended = None
    while ended is None:
        before = len(stopper.stopped)
        try:
            ended = pipeline.run(study, store, stopper)
        except Cancelled:
            assert len(stopper.stopped) == before + 1
            stage = next(one for one in opened(study, store).course("all") if one.name == stopper.stopped[-1])
            # what was stopped leaves nothing, neither under its name nor beside it
            assert not store.has(stage.kind, stage.key)
            assert not [path for path in tmp_path.glob("*/.*") if is_beside(path.name)]
            assert runs.read(store, run_name(study))["state"] == "cancelled"
    assert contents(tmp_path) == wanted
    assert {name: summary[name] for name in ("retention", "perplexity", "accuracy")} == {
        name: ended[name] for name in ("retention", "perplexity", "accuracy")
    }
    assert stopper.stopped == worked if not within else set(stopper.stopped) <= set(worked)
    kinds = {re.split(r"[_.]", name)[0] for name in stopper.stopped}
    assert kinds >= {"statistics", "clusters", "learning", "gates", "repaired", "masks"}
