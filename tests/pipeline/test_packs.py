"""A run goes from one cache into another as one file; a file that is no sound pack leaves nothing behind."""

import io
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import a_study, read, write_run

from gprune.__main__ import main
from gprune.pipeline import runs, stages
from gprune.pipeline.packs import Unpacked, pack_contents, unpack, write_pack
from gprune.pipeline.runs.opened import recorded_graph
from gprune.pipeline.stages import KINDS, Results
from gprune.store import Store, checksums
from gprune.system.errors import GpruneError, SettingsError, StoreError


def arrays(root):
    """Every array of a cache, by its path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.glob("*/*/*.npy")}


def change_record(root, name, **fields):
    path = root / "runs" / name / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def write(store, name, path):
    write_pack(store, pack_contents(store, name), path)
    return path


@pytest.fixture
def present(tmp_path):
    """An empty cache to unpack into."""
    return Store(tmp_path / "there")


@pytest.fixture
def source_run(tmp_path):
    """A cache with a run, and the run's name."""
    root = tmp_path / "here"
    return root, write_run(root)


@pytest.fixture
def pack(tmp_path, source_run):
    root, name = source_run
    return write(Store(root), name, tmp_path / "a.zip")


def test_everything_but_model_texts_and_steps_arrives(source_run, pack, present):
    root, name = source_run
    unpacked = unpack(pack, present)
    before, after = arrays(root), arrays(present.root)
    left_out = {kind for kind, values in KINDS.items() if values.holds_text or not values.on_pages}
    assert {"tokens", "sampled", "context_statistics"} <= left_out
    assert after == {path: data for path, data in before.items() if path.split("/")[0] not in left_out}
    assert unpacked == Unpacked(name, len(pack_contents(Store(root), name).results), 0)
    assert not (present.root / "checkpoint").exists()
    # seconds and versions arrive too
    results = Results(present, recorded_graph(read(present.root, name), "it"))
    drift = stages.drift(results.graph)
    assert results.details(drift)["seconds"] == Results(Store(root), results.graph).details(drift)["seconds"]
    assert np.array_equal(results.get(stages.drift).magnitude, np.load(root / f"drift/{drift.key}/magnitude.npy"))
    assert not [path for path in present.root.rglob("*") if path.is_dir() and path.stat().st_mode & 0o077]


def test_a_pack_has_the_same_bytes_every_time(tmp_path, source_run, pack, present):
    root, name = source_run
    first = pack.read_bytes()
    unpack(pack, present)
    assert write(present, name, tmp_path / "b.zip").read_bytes() == first
    with pytest.raises(SettingsError, match="exists already"):
        write(Store(root), name, tmp_path / "a.zip")
    assert sorted(path.name for path in tmp_path.glob("*.zip")) == ["a.zip", "b.zip"]


def test_owner_and_notes_stay_where_they_are(tmp_path, source_run):
    root, name = source_run
    change_record(root, name, owner={"host": "secret-host"}, remark="private")
    (root / "runs" / name / "about.json").write_text('{"note": "private"}')
    with zipfile.ZipFile(write(Store(root), name, tmp_path / "a.zip")) as archive:
        record = archive.read(runs.RECORD)
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert not [entry for entry in archive.namelist() if "about" in entry]
    assert b"secret-host" not in record and b"private" not in record


def test_results_that_are_there_stay_and_another_run_is_not_replaced(source_run, pack, present):
    root, name = source_run
    count = unpack(pack, present).added
    stamps = {path: path.stat().st_mtime_ns for path in present.root.glob("*/*/*.npy")}
    assert unpack(pack, present) == Unpacked(name, 0, count)
    assert stamps == {path: path.stat().st_mtime_ns for path in present.root.glob("*/*/*.npy")}
    # the run that was computed here is not the one of the pack
    change_record(root, name, seconds=5.0)
    record = (root / "runs" / name / "run.json").read_bytes()
    with pytest.raises(StoreError, match="has another run named .* use --as NAME"):
        unpack(pack, Store(root))
    assert (root / "runs" / name / "run.json").read_bytes() == record
    assert unpack(pack, Store(root), name="beside").present == count
    assert read(root, "beside")["run"] == "beside"
    with pytest.raises(SettingsError, match="invalid run name '../x'"):
        unpack(pack, Store(root), name="../x")


def test_a_differing_result_is_not_replaced_and_a_damaged_one_is(source_run, pack, present):
    root, name = source_run
    graph = recorded_graph(read(root, name), "it")
    drift, shape = stages.drift(graph), stages.shape(graph)
    record = Results(Store(root), graph).get(stages.drift)
    other = type(record)(**{axis: np.array(getattr(record, axis))[::-1] for axis in record.__dataclass_fields__})
    present.put("drift", drift.key, other)
    damaged = present.folder("shape", shape.key)
    damaged.mkdir(parents=True)
    (damaged / checksums.MANIFEST).write_text("{}")
    unpacked = unpack(pack, present)
    assert unpacked.present == 1
    stored = present.get("drift", drift.key, type(record))
    assert np.array_equal(stored.magnitude, other.magnitude) and not np.array_equal(stored.magnitude, record.magnitude)
    assert present.has("shape", shape.key) and list((present.root / "damaged").iterdir())


@pytest.mark.parametrize("moment", [0, 7, -1])
def test_an_interrupted_unpacking_leaves_whole_results_and_no_run(pack, present, monkeypatch, moment):
    def stop(done, *_):
        if done == moment:
            raise KeyboardInterrupt

    if moment == -1:
        monkeypatch.setattr("gprune.pipeline.packs.runs.save", lambda *_: stop(moment))
    with pytest.raises(KeyboardInterrupt):
        unpack(pack, present, progress=stop)
    monkeypatch.undo()
    assert not list((present.root / "runs").iterdir())
    full = [path for path in present.root.glob("*/*") if path.parent.name in KINDS]
    assert all(present.has(path.parent.name, path.name) for path in full) and bool(full) == (moment == -1)
    assert unpack(pack, present).present == len(full)


def test_slips_cost_one_sentence(tmp_path, source_run, capsys):
    root, name = source_run
    cases = (
        (["pack", "nothing", "--cache", str(root)], "there is no run 'nothing'"),
        (["pack", "../x", "--cache", str(root)], "is not a name of a stage or result"),
        (["pack", name, "--cache", str(root), "-o", str(tmp_path / "no" / "a.zip")], "does not exist"),
        (["unpack", str(tmp_path / "no.zip"), "--cache", str(tmp_path)], "No such file"),
    )
    for words, message in cases:
        assert main(words) == 2
        printed = capsys.readouterr().err
        assert message in printed and printed.startswith("error: ") and printed.count("\n") == 1
    (next((root / "drift").iterdir()) / "magnitude.npy").write_bytes(b"short")
    assert main(["pack", name, "--cache", str(root), "-o", str(tmp_path / "a.zip")]) == 2
    assert "damaged" in capsys.readouterr().err and not (tmp_path / "a.zip").exists()


def test_texts_and_steps_are_included_on_request(tmp_path, source_run, capsys):
    root, name = source_run
    words = ["pack", name, "--cache", str(root), "-o", str(tmp_path / "a.zip")]
    assert main([*words, "--with-contexts", "--with-steps"]) == 0
    printed = capsys.readouterr().err
    assert "reconstructed from the pack: 'python-reference', 'science-docs', 'python-code'" in printed
    assert printed.index("reconstructed") < printed.index("written")
    assert main(["unpack", str(tmp_path / "a.zip"), "--cache", str(tmp_path / "there")]) == 0
    assert f"{name}: " in capsys.readouterr().out
    assert arrays(tmp_path / "there") == arrays(root)


def test_a_run_without_an_end_is_no_run_at_work_elsewhere(tmp_path):
    root = tmp_path / "here"
    name = write_run(root, state="running", stages="drift")
    unpack(write(Store(root), name, tmp_path / "a.zip"), Store(tmp_path / "there"))
    record = read(tmp_path / "there", name)
    assert (record["state"], record["error"]) == ("cancelled", "the run was packed before it had finished")


@dataclass
class Draft:
    """The files of a pack, to be changed and written again."""

    files: dict[str, bytes]
    more: list[tuple[zipfile.ZipInfo, bytes]] = field(default_factory=list)
    """entries behind the files"""

    def write(self, path: Path) -> Path:
        """Writes the archive."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in self.files.items():
                archive.writestr(name, data)
            for info, data in self.more:
                archive.writestr(info, data)
        return path

    def file_of(self, kind: str, ending: str) -> str:
        """Name of a file of some kind of result."""
        return next(name for name in self.files if name.startswith(f"results/{kind}/") and name.endswith(ending))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A pack of a whole run of random numbers."""
    root = tmp_path_factory.mktemp("packed")
    name = write_run(root / "cache", study=a_study())
    return write(Store(root / "cache"), name, root / "run.zip")


@pytest.fixture
def draft(packed):
    with zipfile.ZipFile(packed) as archive:
        return Draft({name: archive.read(name) for name in archive.namelist()})


def refused(path, words):
    """Reads an archive into an empty cache, which stays empty."""
    cache = path.parent / "cache"
    with pytest.raises(GpruneError, match=words) as caught:
        unpack(path, Store(cache))
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file()]
    assert not list(cache.glob("runs/.*"))


KEY = "0" * 32


@pytest.mark.parametrize(
    "name",
    [
        "../outside.npy",
        "/etc/passwd",
        "results/masks/../../../x.npy",
        f"results/masks/{KEY}/model.safetensors",
        f"results/checkpoint/{KEY}/pruning.json",
        f"results/unheard/{KEY}/ffn.npy",
    ],
)
def test_names_that_no_pack_has(tmp_path, draft, name):
    info = zipfile.ZipInfo("x")
    info.filename = name
    draft.more.append((info, b"x"))
    refused(draft.write(tmp_path / "a.zip"), "the pack contains .* which is not a file of a run")


def test_files_that_are_missing_or_there_twice(tmp_path, draft):
    for name, words in ((draft.file_of("masks", ".npy"), "lacks a file of a result"), (runs.RECORD, "has no run.json")):
        changed = Draft({entry: data for entry, data in draft.files.items() if entry != name})
        refused(changed.write(tmp_path / "a.zip"), words)
    draft.more.append((zipfile.ZipInfo(runs.RECORD), b"{}"))
    with pytest.warns(UserWarning, match="Duplicate"):
        path = draft.write(tmp_path / "a.zip")
    refused(path, "or has a duplicate")


def test_content_that_is_not_what_was_written(tmp_path, draft):
    for name in (draft.file_of("scores", ".npy"), draft.file_of("scores", ".json")):
        changed = Draft(dict(draft.files))
        data = bytearray(changed.files[name])
        data[-3] ^= 1
        changed.files[name] = bytes(data)
        words = "a result of the pack .* cannot be read .*(not hold what was written|not JSON)"
        refused(changed.write(tmp_path / "a.zip"), words)
    draft.files[runs.RECORD] = b"[]"
    refused(draft.write(tmp_path / "a.zip"), "run.json of the pack holds no JSON object")


def test_a_file_that_is_no_archive_or_cut_off(tmp_path, packed):
    data, path = packed.read_bytes(), tmp_path / "a.zip"
    for cut in (0, 10, len(data) // 2, len(data) - 30):
        path.write_bytes(data[:cut])
        refused(path, "is damaged or no zip archive")


def bytes_of(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "array",
    [
        lambda: bytes_of(np.array([{}], dtype=object), allow_pickle=True),
        lambda: bytes_of(np.zeros(3)).replace(b"(3,)", b"(9,)"),
        lambda: bytes_of(np.zeros((2, 2))),
    ],
)
def test_arrays_that_are_none(tmp_path, draft, array):
    draft.files[next(name for name in draft.files if name.endswith("/ffn_mean.npy"))] = array()
    refused(draft.write(tmp_path / "a.zip"), r"a result of the pack \(\w+/\w+\) cannot be read")


def test_results_of_another_run(tmp_path, draft):
    """A pack cannot put results under keys that its own run does not have."""
    for name in [entry for entry in draft.files if entry.startswith("results/drift/")]:
        draft.files[f"results/drift/{KEY}/{name.split('/')[3]}"] = draft.files.pop(name)
    refused(draft.write(tmp_path / "a.zip"), "of another run")
