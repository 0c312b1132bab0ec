"""`python -m gprune cache`: what is there and for which runs, what can go, and whether all is as written."""

import json
import math
import shutil

import damage
import numpy as np
import pytest
import tiny_study
from synthetic_run import a_study, read, write_run

from gprune.__main__ import main
from gprune.analysis.seeds import summarize_seeds
from gprune.cli import progress
from gprune.pipeline import runs
from gprune.pipeline.cache import cache_entries, overview, remove_run
from gprune.records import ModelShape
from gprune.store import DAMAGED, Store
from gprune.system.units import amount

SHAPE = ModelShape(1, 2, 3, 4, 5, 6)


@pytest.fixture
def cache(tmp_path):
    """A cache with two runs."""
    return Store(tmp_path), [write_run(tmp_path, study=a_study(retention=retained)) for retained in (0.5, 0.7)]


def cache_says(capsys, store, *words):
    code = main(["cache", *words, "--cache", str(store.root)])
    return code, capsys.readouterr()


def test_list_says_what_takes_room_and_for_which_runs(cache, capsys):
    store, runs = cache
    Store(store.root).put("shape", "0" * 32, SHAPE)
    code, said = cache_says(capsys, store, "list")
    lines = {line.split()[0]: line for line in said.out.splitlines() if line.startswith("  ")}
    results = sum(cache_entry.size for cache_entry in cache_entries(store) if cache_entry.kind == "scores")
    assert code == 0 and amount(results) in lines["scores"] and set(runs) < set(lines)
    sizes = {line.split("  ")[-1].strip() for line in (lines[run] for run in runs)}
    assert all(word.endswith("unshared") for word in sizes) and "locks" not in lines
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
    assert "every result is needed by a run" in cache_says(capsys, store, "prune")[1].err


def spoil_record(path, way):
    """Leaves a record as a failure of power, a bad copy or a hand does."""
    text = path.read_bytes()
    path.unlink()
    if way == "a folder":
        path.mkdir()
    else:
        path.write_bytes({"empty": b"", "cut": text[: len(text) // 2], "other": b"[1]"}[way])


@pytest.mark.parametrize("way", ["empty", "cut", "other", "a folder"])
def test_prune_removes_nothing_while_a_run_cannot_be_read(cache, capsys, way):
    store, (first, second) = cache
    (store.root / DAMAGED / "shape-0").mkdir(parents=True)
    store.put("shape", "0" * 32, SHAPE)
    before = damage.results(store)
    spoil_record(path := store.root / "runs" / first / "run.json", way)
    for words in (["prune"], ["prune", "--yes"]):
        code, said = cache_says(capsys, store, *words)
        assert code == 1 and str(path) in said.out and "nothing is removed: these runs may need any" in said.err
        assert "run its study again" in said.err
    assert damage.results(store) == before and (store.root / DAMAGED / "shape-0").is_dir()
    code, said = cache_says(capsys, store, "verify")
    assert code == 1 and str(path) in said.out and "run its study again" in said.err
    assert str(path) in cache_says(capsys, store, "list")[1].out
    code = main(["runs", "--cache", str(store.root)])
    said = capsys.readouterr()
    assert code == 0 and second in said.out and str(path) in said.err and "no runs in" not in said.err
    # that a run is deleted is no reason to lose what the other one has
    remove_run(store, second)
    assert damage.results(store) == before
    assert cache_says(capsys, store, "prune", first, "--yes")[0] == 0
    code, said = cache_says(capsys, store, "prune", "--yes")
    assert code == 0 and not damage.results(store)


def test_prune_of_a_run_removes_what_no_other_run_needs(cache, capsys):
    store, (first, second) = cache
    masks = read(store.root, first)["stages"]["masks_flap"]["key"]
    shared = read(store.root, first)["stages"]["drift"]["key"]
    size = overview(store).runs[first].unshared
    code, said = cache_says(capsys, store, "prune", first)
    assert code == 0 and f"{first}: {amount(size)} to be freed: add --yes" in said.out and store.has("masks", masks)
    code, said = cache_says(capsys, store, "prune", first, "--yes")
    assert code == 0 and f"{first}: removed, {amount(size)} free" in said.out
    assert not store.has("masks", masks) and store.has("drift", shared)
    assert not (store.root / "runs" / first).exists() and (store.root / "runs" / second).exists()
    code, said = cache_says(capsys, store, "prune", first, "--yes")
    assert code == 2 and "there is no run" in said.err


@pytest.mark.parametrize(
    "words", [["runs"], ["jobs", "list"], ["cache", "list"], ["cache", "prune"], ["cache", "verify"]]
)
def test_a_cache_that_is_a_file_is_one_sentence(tmp_path, capsys, words):
    (tmp_path / "file").write_text("no folder")
    assert main([*words, "--cache", str(tmp_path / "file")]) == 2
    said = capsys.readouterr()
    assert "cannot be a folder" in said.err and said.err.count("\n") == 1 and not said.out


def test_a_run_whose_record_is_cut_short_is_named_where_it_is_asked_for(cache, capsys):
    store, (first, _) = cache
    spoil_record(path := store.root / "runs" / first / "run.json", "cut")
    assert main(["report", first, "-o", str(store.root / "r.html"), "--cache", str(store.root)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said and "there is no run" not in said


def test_prune_removes_nothing_of_others_and_nothing_behind_a_link(cache, capsys, tmp_path_factory):
    store, _ = cache
    outside = tmp_path_factory.mktemp("outside")
    for location in (outside / "shape-0", outside / "a-result", store.root / DAMAGED / "photos"):
        location.mkdir(parents=True)
        (location / "file").write_text("mine")
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
    count = len(cache_entries(store))
    code, said = cache_says(capsys, store, "verify")
    assert code == 0 and said.out.startswith(f"{count} results, ") and ": 0 damaged" in said.out
    hit = {path.parent for path, bit in damage.random_flips(store, 5, seed=3) if not damage.flip_bit(path, bit)}
    damage.wait_a_tick()
    code, said = cache_says(capsys, store, "verify")
    folders = {folder if len(folder.relative_to(store.root).parts) == 2 else folder.parent for folder in hit}
    damaged = {line.split(":")[0] for line in said.out.splitlines()[: len(folders)]}
    assert code == 1 and damaged == {str(folder.relative_to(store.root)) for folder in folders}
    assert f": {len(folders)} damaged" in said.out and "computed again" in said.err
    # corrupt results are moved aside
    assert len(cache_entries(store)) == count - len(folders) == count - len(list((store.root / DAMAGED).iterdir()))
    assert cache_says(capsys, store, "verify")[0] == 0


SEEDS = ("3", "0", "1")


def test_spread_is_that_of_the_numbers_and_leaves_out_what_no_seed_has():
    results = [
        {"perplexity": {"dense": {"a": 2.0}, "fang": {"a": 7.0}}, "accuracy": {"dense": {}}, "seconds": {}},
        {"perplexity": {"dense": {"a": 4.0}}, "accuracy": {"dense": {"t": {"acc": 0.5, "samples": 9}}}},
        {"perplexity": {"dense": {"a": 9.0}}, "accuracy": {"dense": {"t": {"acc": 0.7, "acc_norm": None}}}},
    ]
    result = summarize_seeds(results)
    assert result["perplexity"]["dense"]["a"]["mean"] == 5.0
    assert result["perplexity"]["dense"]["a"]["deviation"] == pytest.approx(math.sqrt(26 / 3))
    assert result["perplexity"]["fang"]["a"] == {"mean": 7.0, "deviation": 0.0, "seeds": 1}
    only = result["accuracy"]["dense"]["t"]
    assert list(only) == ["acc"] and only["acc"]["mean"] == pytest.approx(0.6) and only["acc"]["seeds"] == 2
    infinite = summarize_seeds([{"perplexity": {"flap": {"a": math.inf}}}, {"perplexity": {"flap": {"a": 3.0}}}])
    assert infinite["perplexity"]["flap"]["a"]["mean"] == math.inf
    assert set(result) == {"perplexity", "accuracy"}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    values, study = tiny_study.made(folder, methods=["dense", "gprune", "flap"]), folder / "study.json"
    study.write_text(json.dumps(values))
    return folder, str(study), values["evaluation"]["texts"]


def call(capsys, folder, *words):
    code = main(["run", *words, "--cache", str(folder / "cache")])
    return code, capsys.readouterr()


@pytest.mark.slow
def test_every_seed_is_a_run_and_what_no_seed_changes_is_made_once(capsys, workshop):
    folder, study, texts = workshop
    code, said = call(capsys, folder, study, "--until", "perplexity", "--json", "--seeds", *SEEDS)
    assert code == 0 and said.out.count("\n") == 1
    full = json.loads(said.out)
    assert full["seeds"] == [3, 0, 1]
    assert [item["settings"]["seed"] for item in full["runs"]] == [3, 0, 1]
    assert len(dict(runs.read_all(Store(folder / "cache")))) == 3
    first, *rest = (set(item["reused"]) for item in full["runs"])
    assert not first
    for reused in rest:
        assert {"shape", "size", "norms", "perplexity.dense.0"} <= reused
        assert not {"tokens_primary", "learning"} & reused
    for method in ("dense", "gprune", "flap"):
        values = [item["perplexity"][method][texts[0]] for item in full["runs"]]
        message = full["spread"]["perplexity"][method][texts[0]]
        assert message["mean"] == pytest.approx(np.mean(values)) and message["seeds"] == 3
        assert message["deviation"] == pytest.approx(np.std(values))
    assert full["spread"]["perplexity"]["dense"][texts[0]]["deviation"] == 0.0
    assert full["spread"]["perplexity"]["gprune"][texts[0]]["deviation"] > 0
    code, said = call(capsys, folder, study, "--until", "perplexity", "--seeds", *SEEDS)
    assert code == 0 and "mean ± s.d. over seeds 3 0 1" in " ".join(said.out.split())
    assert said.out.count("0 stages computed") == 3 and "± 0.00" in said.out


@pytest.mark.parametrize(
    ("seeds", "words"), [(("1", "1"), "--seeds must be seeds that differ"), (("-1",), "seed must")]
)
def test_seeds_that_cannot_be_run_are_one_sentence(capsys, workshop, seeds, words):
    folder, study, _ = workshop
    code, said = call(capsys, folder, study, "--seeds", *seeds)
    assert code == 2 and words in said.err and said.err.count("\n") == 1


def test_one_protocol_is_one_line_without_a_mark(capsys):
    result = {
        "settings": {"evaluation": {"texts": ["c4"], "preset": "128"}, "seed": 0},
        "run": "r",
        "retention": {"dense": 1.0, "flap": 0.5},
        "parameters": {"dense": 9, "flap": 5},
        "perplexity": {"dense": {"c4": 40.0}, "flap": {"c4": 50.0}},
        "protocols": [{"line": "perplexity over 48 windows of 128 tokens; torch 2.13"}],
        "texts": {"c4": {"sentence": "c4: unseen, a different corpus than A and B"}},
        "seconds": {},
        "reused": [],
    }
    progress.print_summary(result)
    visible = capsys.readouterr().out
    assert "protocol: perplexity over 48 windows of 128 tokens; torch 2.13\n" in visible
    assert "text: c4: unseen, a different corpus than A and B\n" in visible
