"""`python -m gprune cache`: what is there and for which runs, what can go, and whether all is as written."""

import shutil

import damage
import pytest
from synthetic_run import a_study, read, write_run

from gprune.__main__ import main
from gprune.pipeline.cache.usage import stored
from gprune.pipeline.stages import KINDS
from gprune.records import ModelShape
from gprune.store import DAMAGED, Store
from gprune.system.units import amount

SHAPE = ModelShape(1, 2, 3, 4, 5, 6)


@pytest.fixture
def cache(tmp_path):
    """A cache with two runs."""
    return Store(tmp_path), [write_run(tmp_path, study=a_study(retention=kept)) for kept in (0.5, 0.7)]


def cache_says(capsys, store, *words):
    code = main(["cache", *words, "--cache", str(store.root)])
    return code, capsys.readouterr()


def test_list_says_what_takes_room_and_for_which_runs(cache, capsys):
    store, runs = cache
    Store(store.root).put("shape", "0" * 32, SHAPE)
    code, said = cache_says(capsys, store, "list")
    lines = {line.split()[0]: line for line in said.out.splitlines() if line.startswith("  ")}
    results = sum(one.size for one in stored(store) if one.stage == "scores")
    assert code == 0 and amount(results) in lines["scores"] and set(runs) < set(lines)
    own = {line.split("  ")[-1].strip() for line in (lines[run] for run in runs)}
    assert all(word.endswith("its own") for word in own) and "locks" not in lines
    assert said.out.splitlines()[-1].startswith("1 results that no run needs: ")


def test_prune_shows_first_and_removes_when_told(cache, capsys):
    store, (first, second) = cache
    masks = read(store.root, first)["stages"]["masks_flap"]["key"]
    shutil.rmtree(store.root / "runs" / first)
    (store.root / DAMAGED / "shape-0").mkdir(parents=True)
    before = damage.results(store)
    code, said = cache_says(capsys, store, "prune")
    assert code == 0 and f"masks/{masks}" in said.out and f"{DAMAGED}/shape-0" in said.out
    assert "add --yes" in said.err and damage.results(store) == before
    code, said = cache_says(capsys, store, "prune", "--yes")
    assert code == 0 and f"masks/{masks}" in said.out
    assert not store.has("masks", masks) and not list((store.root / DAMAGED).iterdir())
    keys = {entry["key"] for entry in read(store.root, second)["stages"].values()}
    assert {key for _, key in damage.results(store)} == keys
    assert "nothing that no run needs" in cache_says(capsys, store, "prune")[1].err


def test_prune_removes_nothing_of_others_and_nothing_behind_a_link(cache, capsys, tmp_path_factory):
    store, _ = cache
    outside = tmp_path_factory.mktemp("outside")
    for place in (outside / "shape-0", outside / "a-result", store.root / DAMAGED / "photos"):
        place.mkdir(parents=True)
        (place / "file").write_text("mine")
    (store.root / "masks" / ("0" * 32)).symlink_to(outside / "a-result")
    (store.root / DAMAGED / "masks-1").symlink_to(outside / "shape-0")
    assert cache_says(capsys, store, "prune", "--yes")[0] == 0
    assert not (store.root / "masks" / ("0" * 32)).is_symlink()
    shutil.move(store.root / DAMAGED, outside / "more")
    (store.root / DAMAGED).symlink_to(outside)
    assert cache_says(capsys, store, "prune", "--yes")[0] == 0
    assert sorted(path.parent.name for path in outside.rglob("file")) == ["a-result", "photos", "shape-0"]


def test_verify_names_what_is_damaged_and_says_so_in_its_status(cache, capsys):
    store, _ = cache
    count = len(stored(store))
    code, said = cache_says(capsys, store, "verify")
    assert code == 0 and f"files of {count} results" in said.out and ": 0 damaged" in said.out
    hit = {
        path.parent for path, bit in damage.random_flips(store, 5, seed=3) if not damage.flip_bit(path, bit)
    }
    damage.wait_a_tick()
    code, said = cache_says(capsys, store, "verify")
    folders = {folder if len(folder.relative_to(store.root).parts) == 2 else folder.parent for folder in hit}
    named = {line.split(":")[0] for line in said.out.splitlines()[: len(folders)]}
    assert code == 1 and named == {str(folder.relative_to(store.root)) for folder in folders}
    assert f": {len(folders)} damaged" in said.out and "made anew" in said.err
    assert len(stored(store)) == count and not (store.root / DAMAGED).exists()


def test_results_of_before_the_checksums_are_read_and_counted(cache, capsys):
    store, _ = cache
    for place in damage.results(store)[:4]:
        folder = store.folder(*place)
        damage.write_manifest(folder, damage.read_manifest(folder), sealed=False)
        assert store.has(*place, KINDS[place[0]].record) and store.check(*place)
    code, said = cache_says(capsys, store, "verify")
    assert code == 0 and said.out.splitlines()[-1].startswith(
        "4 results are from before there were checksums"
    )
