"""What a run says of memory: in its log, in its record, beside its results, and before it starts."""

import pytest
import tiny_study
import torch

from gprune import pipeline
from gprune.__main__ import main
from gprune.cli.progress import Reporter
from gprune.models.decoder import Decoder
from gprune.pipeline import runs
from gprune.pipeline.estimate import TooLarge
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.system.errors import SettingsError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    return from_dict(tiny_study.made(folder))


@pytest.fixture
def narrow(monkeypatch):
    """A machine that holds three sequences at a time."""
    true = Decoder.hidden_states

    def refuse(self, ids):
        if len(ids) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return true(self, ids)

    monkeypatch.setattr(Decoder, "hidden_states", refuse)


def heard_nothing(stage, done, total, message):
    pass


def test_a_halved_batch_is_said_in_log_and_record(study, narrow, tmp_path, capfd):
    store = Store(tmp_path / "cache")
    with Reporter() as reporter:
        pipeline.run(study, store, reporter, "drift")
    log = capfd.readouterr().err
    words = f"memory ran out with {study.calibration.batch} sequences"
    assert f"statistics_primary: {words}" in log.replace("\n", " ")
    record = runs.read(store, run_name(study))
    [notice, *_] = record["stages"]["statistics_primary"]["notices"]
    assert words in notice and "changes no result" in notice
    assert "notices" not in record["stages"]["drift"]
    # whoever takes the result over sees how it was made
    again = Store(store.root)
    pipeline.run(study, again, heard_nothing, "drift")
    assert runs.read(again, run_name(study))["stages"]["statistics_primary"]["notices"] == [notice]


def test_memory_that_runs_out_anywhere_else_is_one_sentence(study, monkeypatch, tmp_path):
    def refuse(self):
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9437184 bytes"
        )

    monkeypatch.setattr(Decoder, "weight_norms", refuse)
    expected = r"^weight norms: memory ran out \(9.0 MiB more were asked for, .* are free on cpu\): use dtype"
    with pytest.raises(SettingsError, match=expected):
        pipeline.run(study, Store(tmp_path / "cache"), heard_nothing, "drift")


def test_what_cannot_fit_is_refused_before_anything_is_made(study, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr("gprune.system.machine.memory", lambda: (2**29, 2**29))
    file, root = tmp_path / "study.json", tmp_path / "cache"
    file.write_text(study.to_json())
    command = ["run", str(file), "--until", "drift", "--cache", str(root)]
    assert main(command) == 2
    said = capfd.readouterr().err.replace("\n", " ")
    assert "more than the 0.5 GiB of this machine" in said and "--anyway" in said
    assert runs.read(Store(root), run_name(study)) is None
    with pytest.raises(TooLarge):
        pipeline.run(study, Store(root), heard_nothing, "drift")
    assert main([*command, "--anyway"]) == 0
    assert "started anyway" in capfd.readouterr().err


def test_a_dry_run_says_memory_and_time_of_what_is_missing(study, tmp_path, capfd):
    file, root = tmp_path / "study.json", tmp_path / "cache"
    file.write_text(study.to_json())
    command = ["run", str(file), "--cache", str(root), "--dry-run", "--until", "drift"]
    assert main(command) == 0
    said = capfd.readouterr()
    lines = [line.split() for line in said.err.splitlines()]
    assert ["statistics_primary", "0.7", "0.7"] in [line[:3] for line in lines]
    assert "statistics_primary" in said.out and "at most 0.7 GiB" in said.err
    pipeline.run(study, Store(root), heard_nothing, "drift")
    assert main(command) == 0
    assert capfd.readouterr().err.strip().endswith("stages, 0 missing")
