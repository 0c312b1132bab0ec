"""Strongest positions in a run: made on the way of the statistics, had later by a pass, missed by no run."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_study
from tiny_study import silent

from gprune import pipeline
from gprune.pipeline import runs, stages
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.system.errors import Cancelled

pytestmark = pytest.mark.slow

ROLES = ("primary", "auxiliary", "substitute")
MADE = {f"positions_{role}" for role in ROLES}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("positions")
    values = tiny_study.made(folder, third=True)
    return from_dict(values)


@pytest.fixture(scope="module")
def fresh(study, tmp_path_factory):
    cache = tmp_path_factory.mktemp("fresh") / "cache"
    return cache, pipeline.run(study, Store(cache), silent, "agreement")


@pytest.fixture
def older(study, fresh, tmp_path):
    """A cache as a version has left it that kept no positions."""
    shutil.copytree(fresh[0], tmp_path / "cache")
    store = Store(tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache" / "positions")
    record = runs.read(store, run_name(study))
    for name in MADE:
        del record["stages"][name]
    del record["study"]["calibration"]["positions"]
    runs.save(store, run_name(study), record)
    return store


def of(store, study):
    return runs.read(store, run_name(study))


def test_the_pass_of_the_statistics_makes_them_and_the_record_says_so(study, fresh):
    cache, result = fresh
    assert set(result["keys"]) >= MADE and not MADE & (set(result["passes"]) | set(result["reused"]))
    assert all(result["passes"][f"statistics_{role}"] == {"forward": 1.0, "backward": 0.0} for role in ROLES)
    entry = of(Store(cache), study)["stages"]["positions_auxiliary"]
    assert (entry["with"], entry["seconds"], entry["reused"]) == ("statistics_auxiliary", 0.0, False)
    results = pipeline.opened(study, Store(cache))
    for role in ROLES:
        found, tokens = results.get(stages.positions, role), results.get(stages.tokens, role)
        assert found.fingerprint == tokens.fingerprint and found.values.shape == (2, 27, 8)


def test_neither_their_absence_nor_their_number_changes_any_other_key(study, fresh, tmp_path):
    _, known = fresh
    for count in (0, 3):
        changed = study.with_settings({"calibration.positions": count})
        result = pipeline.run(changed, Store(tmp_path / str(count)), silent, "drift")
        others = {name: key for name, key in result["keys"].items() if name not in MADE}
        assert others == {name: known["keys"][name] for name in others} and "drift" in others
        folder = tmp_path / str(count) / "positions"
        assert len(list(folder.iterdir()) if folder.exists() else ()) == (2 if count else 0)


def test_an_older_run_gets_them_by_a_pass_and_stays_what_it_was(study, older, fresh):
    was = of(older, study)
    result = pipeline.run(study, older, silent, "positions")
    assert (
        set(result["keys"]) - set(result["reused"])
        == MADE
        == set(result["passes"]) - {f"statistics_{role}" for role in ROLES}
    )
    record = of(older, study)
    assert (record["state"], record["until"], record["result"]) == ("done", "agreement", was["result"])
    assert set(record["stages"]) == set(was["stages"]) | MADE
    beside, alone = (pipeline.opened(study, Store(place)) for place in (fresh[0], older.root))
    for role in ROLES:
        first, second = (results.get(stages.positions, role) for results in (beside, alone))
        for name in ("sequences", "positions", "values"):
            assert np.array_equal(getattr(first, name), getattr(second, name))


def test_who_stops_on_the_way_to_them_leaves_a_done_run_done(study, older):
    def stop(stage, done, total, message):
        if stage == "positions_primary" and message == "strongest positions":
            raise Cancelled("stop")

    with pytest.raises(Cancelled):
        pipeline.run(study, older, stop, "positions")
    record = of(older, study)
    assert (record["state"], record["error"], record["until"]) == ("done", None, "agreement")
    assert not Path(older.root / "positions").exists() or not list((older.root / "positions").iterdir())
