"""Strongest positions in a run: made on the way of the statistics, had later by a pass, missed by no run."""

import shutil

import numpy as np
import pytest
import tiny_study
from counted_memory import hold_sequences
from tiny_study import record_of, silent

from gprune import pipeline
from gprune.__main__ import main
from gprune.cli.progress import Reporter
from gprune.models.decoder import Decoder
from gprune.pipeline import runs, stages
from gprune.pipeline.estimate.forecast import TooLarge
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.system.errors import SettingsError

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


def test_the_pass_of_the_statistics_makes_them_and_the_record_says_so(study, fresh):
    cache, result = fresh
    assert set(result["keys"]) >= MADE and not MADE & (set(result["passes"]) | set(result["reused"]))
    assert all(result["passes"][f"statistics_{role}"] == {"forward": 1.0, "backward": 0.0} for role in ROLES)
    entry = record_of(Store(cache), study)["stages"]["positions_auxiliary"]
    assert entry["seconds"] < 0.5 and not entry["reused"]
    results = pipeline.opened(study, Store(cache))
    for role in ROLES:
        outcome, tokens = results.get(stages.positions, role), results.get(stages.tokens, role)
        assert outcome.fingerprint == tokens.fingerprint and outcome.values.shape == (2, 27, 8)


def test_neither_their_absence_nor_their_number_changes_any_other_key(study, fresh, tmp_path):
    _, reference = fresh
    for count in (0, 3):
        changed = study.with_settings({"calibration.positions": count})
        result = pipeline.run(changed, Store(tmp_path / str(count)), silent, "drift")
        rest = {name: key for name, key in result["keys"].items() if name not in MADE}
        assert rest == {name: reference["keys"][name] for name in rest} and "drift" in rest
        folder = tmp_path / str(count) / "positions"
        assert len(list(folder.iterdir()) if folder.exists() else ()) == (2 if count else 0)


def test_an_older_run_gets_them_by_a_pass_and_stays_what_it_was(study, fresh, tmp_path):
    # their files and names are gone, as after unpacking a run without them
    older = Store(shutil.copytree(fresh[0], tmp_path / "cache"))
    shutil.rmtree(older.root / "positions")
    was = record_of(older, study)
    for name in MADE:
        del was["stages"][name]
    runs.save(older, run_name(study), was)
    result = pipeline.run(study, older, silent, "agreement")
    assert set(result["keys"]) - set(result["reused"]) == MADE
    assert set(result["passes"]) - {f"statistics_{role}" for role in ROLES} == MADE
    record = record_of(older, study)
    assert (record["state"], record["until"], record["result"]) == ("done", "agreement", was["result"])
    assert set(record["stages"]) == set(was["stages"]) | MADE
    neighbours, alone = (pipeline.opened(study, Store(location)) for location in (fresh[0], older.root))
    for role in ROLES:
        first, second = (results.get(stages.positions, role) for results in (neighbours, alone))
        for name in ("sequences", "positions", "values"):
            assert np.array_equal(getattr(first, name), getattr(second, name))


def test_a_halved_batch_is_said_in_log_and_record(study, tmp_path, capfd, monkeypatch):
    hold_sequences(monkeypatch, 3)
    store = Store(tmp_path / "cache")
    with Reporter() as reporter:
        pipeline.run(study, store, reporter, "drift")
    log = capfd.readouterr().err
    words = f"memory ran out with {study.calibration.batch} sequences"
    assert f"statistics_primary: {words}" in log.replace("\n", " ")
    record = runs.read(store, run_name(study))
    [notice, *_] = record["stages"]["statistics_primary"]["notices"]
    assert words in notice and "does not change results" in notice
    assert "notices" not in record["stages"]["drift"]
    # whoever takes the result over sees how it was made
    again = Store(store.root)
    pipeline.run(study, again, silent, "drift")
    assert runs.read(again, run_name(study))["stages"]["statistics_primary"]["notices"] == [notice]


def test_memory_that_runs_out_anywhere_else_is_one_sentence(study, monkeypatch, tmp_path):
    def refuse(self):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9437184 bytes")

    monkeypatch.setattr(Decoder, "weight_norms", refuse)
    expected = r"^weight norms: memory ran out \(9.0 MiB more were requested, .* are free on cpu\): use dtype"
    with pytest.raises(SettingsError, match=expected):
        pipeline.run(study, Store(tmp_path / "cache"), silent, "drift")


def test_what_cannot_fit_is_refused_before_anything_is_made(study, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr("gprune.system.machine.memory", lambda: (2**28, 2**28))
    file, root = tmp_path / "study.json", tmp_path / "cache"
    file.write_text(study.to_json())
    command = ["run", str(file), "--until", "drift", "--cache", str(root)]
    assert main(command) == 2
    said = capfd.readouterr().err.replace("\n", " ")
    assert "more than the 256.0 MiB of this machine" in said and "--anyway" in said
    assert runs.read(Store(root), run_name(study)) is None
    with pytest.raises(TooLarge):
        pipeline.run(study, Store(root), silent, "drift")
    assert main([*command, "--anyway"]) == 0
    assert "started anyway" in capfd.readouterr().err


def test_a_dry_run_says_memory_and_time_of_what_is_missing(study, tmp_path, capfd):
    file, root = tmp_path / "study.json", tmp_path / "cache"
    file.write_text(study.to_json())
    command = ["run", str(file), "--cache", str(root), "--dry-run", "--until", "drift"]
    assert main(command) == 0
    said = capfd.readouterr()
    lines = [line.split() for line in said.err.splitlines()]
    assert ["statistics_primary", "0.6", "0.6"] in [line[:3] for line in lines]
    assert "statistics_primary" in said.out and "at most 614" in said.err
    pipeline.run(study, Store(root), silent, "drift")
    assert main(command) == 0
    assert capfd.readouterr().err.strip().endswith("stages, 0 missing")
