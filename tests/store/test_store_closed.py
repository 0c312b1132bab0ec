"""A cache is its owner's alone, and one that cannot be written is read as any other."""

import os
import shutil
import stat
from pathlib import Path

import pytest
import tiny_study
from unwritable import unwritable

from gprune import pipeline
from gprune.__main__ import main
from gprune.jobs import submit
from gprune.store import Store
from gprune.study import from_dict
from gprune.system.errors import StoreError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run made under the usual mask: its study and its cache."""
    folder = tmp_path_factory.mktemp("closed")
    study = from_dict(tiny_study.made(folder))
    (folder / "study.json").write_text(study.to_json(), encoding="utf-8")
    mask = os.umask(0o022)
    try:
        pipeline.run(study, Store(folder / "cache"), lambda *_: None)
    finally:
        os.umask(mask)
    return study, folder / "cache"


def open_to_others(place: Path) -> list[str]:
    """What others than the owner may do anything with."""
    everything = [place, *place.rglob("*")]
    return [str(path) for path in everything if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def test_all_of_a_cache_is_its_owners_alone(finished, monkeypatch):
    study, root = finished
    monkeypatch.setattr("gprune.jobs.local.start_supervisor", lambda folder: None)
    mask = os.umask(0o022)
    try:
        submit(root, study)
    finally:
        os.umask(mask)
    assert len([path for path in root.rglob("*") if path.is_file()]) > 100
    assert open_to_others(root) == []


def test_a_finished_run_is_done_again_from_a_cache_that_cannot_be_written(finished, capsys):
    study, root = finished
    before = sorted(str(path) for path in root.rglob("*"))
    with unwritable(root) as tried:
        told = []
        result = pipeline.run(study, Store(root), lambda stage, *rest: told.append(rest[-1]))
        words = ["--cache", str(root)]
        codes = [main([*command, *words]) for command in (["runs"], ["cache", "list"], ["cache", "verify"])]
        codes.append(main(["run", str(root.parent / "study.json"), "--json", *words]))
        codes.append(main(["run", str(root.parent / "study.json"), "--dry-run", *words]))
    assert set(told) == {"reused"} and result["perplexity"] and codes == [0] * 5
    # each of the two runs has tried to become the owner of the record, and nothing else
    assert {Path(one.split()[1]).relative_to(root).parts[0] for one in tried} == {"locks"}
    assert [one for one in tried if one.endswith(".lock") and not one.endswith(".run.lock")] == []
    assert sorted(str(path) for path in root.rglob("*")) == before


def test_what_is_missing_from_a_cache_that_cannot_be_written_is_told_in_a_sentence(finished, tmp_path):
    study, root = finished
    shutil.copytree(root, tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache" / "drift")
    with unwritable(tmp_path / "cache"), pytest.raises(StoreError, match=r"cannot be written \(read-only\)"):
        pipeline.run(study, Store(tmp_path / "cache"), lambda *_: None)
