"""A run goes from one cache into another as one file; a file that is no sound pack leaves nothing behind."""

import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import a_study, read, write_run

from gprune.__main__ import main
from gprune.pipeline import packs, stages
from gprune.pipeline.packs import INDEX, RECORD, Unpacked, pack_contents, unpack, write_pack
from gprune.pipeline.runs.cached import recorded_graph
from gprune.pipeline.stages import KINDS, Results
from gprune.store import Store, manifests
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
def here(tmp_path):
    """A cache with a run, and the run's name."""
    root = tmp_path / "here"
    return root, write_run(root)


def test_everything_but_model_texts_and_steps_arrives(tmp_path, here):
    root, name = here
    contents = pack_contents(Store(root), name)
    write_pack(Store(root), contents, tmp_path / "a.zip")
    unpacked = unpack(tmp_path / "a.zip", Store(tmp_path / "there"))
    before, after = arrays(root), arrays(tmp_path / "there")
    left_out = {kind for kind, values in KINDS.items() if values.holds_text or not values.on_pages}
    assert {"tokens", "sampled", "context_statistics"} <= left_out
    assert after == {path: data for path, data in before.items() if path.split("/")[0] not in left_out}
    assert unpacked == Unpacked(name, len(contents.results), 0, 0)
    assert not (tmp_path / "there" / "checkpoint").exists()
    # seconds and versions arrive too
    there = Results(Store(tmp_path / "there"), recorded_graph(read(tmp_path / "there", name), "it"))
    drift = stages.drift(there.graph)
    assert there.details(drift)["seconds"] == Results(Store(root), there.graph).details(drift)["seconds"]
    assert np.array_equal(there.get(stages.drift).magnitude, np.load(root / f"drift/{drift.key}/magnitude.npy"))
    for path in (tmp_path / "there").rglob("*"):
        assert not path.stat().st_mode & 0o077, path


def test_a_pack_has_the_same_bytes_every_time(tmp_path, here):
    root, name = here
    first = write(Store(root), name, tmp_path / "a.zip").read_bytes()
    unpack(tmp_path / "a.zip", Store(tmp_path / "there"))
    assert write(Store(tmp_path / "there"), name, tmp_path / "b.zip").read_bytes() == first
    with pytest.raises(SettingsError, match="exists already"):
        write(Store(root), name, tmp_path / "a.zip")
    assert sorted(path.name for path in tmp_path.glob("*.zip")) == ["a.zip", "b.zip"]


def test_owner_and_notes_stay_where_they_are(tmp_path, here):
    root, name = here
    change_record(root, name, owner={"host": "secret-host"}, remark="private")
    (root / "runs" / name / "about.json").write_text('{"note": "private"}')
    with zipfile.ZipFile(write(Store(root), name, tmp_path / "a.zip")) as archive:
        record = archive.read(RECORD)
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert not [entry for entry in archive.namelist() if "about" in entry]
    assert b"secret-host" not in record and b"private" not in record


def test_results_that_are_there_stay_and_another_run_is_not_replaced(tmp_path, here):
    root, name = here
    pack, there = write(Store(root), name, tmp_path / "a.zip"), tmp_path / "there"
    count = len(pack_contents(Store(root), name).results)
    unpack(pack, Store(there))
    stamps = {path: path.stat().st_mtime_ns for path in there.glob("*/*/*.npy")}
    assert unpack(pack, Store(there)) == Unpacked(name, 0, count, 0)
    assert stamps == {path: path.stat().st_mtime_ns for path in there.glob("*/*/*.npy")}
    # the run that was computed here is not the one of the pack
    change_record(root, name, seconds=5.0)
    record = (root / "runs" / name / "run.json").read_bytes()
    with pytest.raises(StoreError, match="holds another run called .* say --as NAME"):
        unpack(pack, Store(root))
    assert (root / "runs" / name / "run.json").read_bytes() == record
    assert unpack(pack, Store(root), name="beside").present == count
    assert read(root, "beside")["run"] == "beside"
    with pytest.raises(SettingsError, match="cannot be called '../x'"):
        unpack(pack, Store(root), name="../x")


def test_a_differing_result_is_counted_and_not_replaced_and_a_damaged_one_is(tmp_path, here):
    root, name = here
    pack, there = write(Store(root), name, tmp_path / "a.zip"), Store(tmp_path / "there")
    graph = recorded_graph(read(root, name), "it")
    drift, shape = stages.drift(graph), stages.shape(graph)
    record = Results(Store(root), graph).get(stages.drift)
    other = type(record)(**{axis: np.array(getattr(record, axis))[::-1] for axis in record.__dataclass_fields__})
    there.put("drift", drift.key, other)
    damaged = there.folder("shape", shape.key)
    damaged.mkdir(parents=True)
    (damaged / manifests.NAME).write_text("{}")
    unpacked = unpack(pack, there)
    assert (unpacked.present, unpacked.differing) == (1, 1)
    stored = there.get("drift", drift.key, type(record))
    assert np.array_equal(stored.magnitude, other.magnitude) and not np.array_equal(stored.magnitude, record.magnitude)
    assert there.has("shape", shape.key) and list((there.root / "damaged").iterdir())


@pytest.mark.parametrize("moment", [0, 7, -1])
def test_an_interrupted_unpacking_leaves_whole_results_and_no_run(tmp_path, here, monkeypatch, moment):
    root, name = here
    pack, there = write(Store(root), name, tmp_path / "a.zip"), Store(tmp_path / "there")

    def stop(done, *_):
        if done == moment:
            raise KeyboardInterrupt

    def fail(*_):
        raise KeyboardInterrupt

    if moment == -1:
        monkeypatch.setattr("gprune.pipeline.packs.runs.save", fail)
    with pytest.raises(KeyboardInterrupt):
        unpack(pack, there, progress=stop)
    monkeypatch.undo()
    assert not list((there.root / "runs").iterdir())
    whole = [path for path in there.root.glob("*/*") if path.parent.name in KINDS]
    assert all(there.has(path.parent.name, path.name) for path in whole) and bool(whole) == (moment == -1)
    assert unpack(pack, there).present == len(whole)


def test_slips_cost_one_sentence(tmp_path, here, capsys):
    root, name = here
    cases = (
        (["pack", "nothing", "--cache", str(root)], "there is no run 'nothing'"),
        (["pack", "../x", "--cache", str(root)], "is not a name of a stage or result"),
        (["pack", name, "--cache", str(root), "-o", str(tmp_path / "no" / "a.zip")], "does not exist"),
        (["unpack", str(tmp_path / "no.zip"), "--cache", str(tmp_path)], "No such file"),
        (["unpack", "x", "--largest", "-1"], "a number of GiB above 0"),
    )
    for words, message in cases:
        assert main(words) == 2
        printed = capsys.readouterr().err
        assert message in printed and printed.startswith("error: ") and printed.count("\n") == 1
    (next((root / "drift").iterdir()) / "magnitude.npy").write_bytes(b"short")
    assert main(["pack", name, "--cache", str(root), "-o", str(tmp_path / "a.zip")]) == 2
    assert "damaged" in capsys.readouterr().err and not (tmp_path / "a.zip").exists()


def test_texts_and_steps_are_included_on_request(tmp_path, here, capsys):
    root, name = here
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
    assert (record["state"], record["error"]) == ("cancelled", "it was packed before it had ended")


@dataclass
class Draft:
    """The files of a pack, to be changed and written again."""

    files: dict[str, bytes]
    more: list[tuple[zipfile.ZipInfo, bytes]] = field(default_factory=list)
    """entries behind the files"""

    def write(self, path: Path, *, honest: bool = True) -> Path:
        """Writes the archive; the SHA-256 of its index are those of the files if `honest`."""
        if honest:
            self.list_files()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in self.files.items():
                archive.writestr(name, data)
            for info, data in self.more:
                archive.writestr(info, data)
        return path

    def list_files(self) -> None:
        files = {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items() if name != INDEX}
        self.edit(INDEX, lambda index: index.update(files=files))

    def edit(self, name: str, change: Callable[[dict], object]) -> None:
        """Changes a file of JSON in place."""
        values = json.loads(self.files[name])
        change(values)
        self.files[name] = json.dumps(values).encode()

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


def refused(path, words, **options):
    """Reads an archive into an empty cache, which stays empty."""
    cache = path.parent / "cache"
    with pytest.raises(GpruneError, match=words) as caught:
        unpack(path, Store(cache), **options)
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
        "results\\masks\\a\\ffn.npy",
        "C:\\x.npy",
        f"results/masks/{KEY}/model.safetensors",
        f"results/masks/{KEY}/other.npy",
        f"results/masks/{KEY}/",
        f"results/checkpoint/{KEY}/pruning.json",
        f"results/unheard/{KEY}/ffn.npy",
        "results/masks/.hidden/ffn.npy",
        "run.json/",
        "n" * 5000,
    ],
)
def test_names_that_no_pack_has(tmp_path, draft, name):
    info = zipfile.ZipInfo("x")
    info.filename = name
    draft.more.append((info, b"x"))
    refused(draft.write(tmp_path / "a.zip"), "the pack holds .* which no run has")


def test_links_and_other_kinds_of_files(tmp_path, draft):
    name = draft.file_of("masks", ".npy")
    for kind in (stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR):
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = 3, (kind | 0o777) << 16
        changed = Draft({entry: data for entry, data in draft.files.items() if entry != name}, [(info, b"/etc/passwd")])
        refused(changed.write(tmp_path / "a.zip"), "is a link or no plain file")


def test_files_and_index_that_differ(tmp_path, draft):
    for name in (draft.file_of("masks", ".npy"), RECORD, INDEX):
        changed = Draft({entry: data for entry, data in draft.files.items() if entry != name})
        refused(changed.write(tmp_path / "a.zip", honest=False), "files differ|has no index.json")
    # half a result, honestly listed
    del draft.files[draft.file_of("masks", ".npy")]
    refused(draft.write(tmp_path / "a.zip"), "files differ")
    draft.more.append((zipfile.ZipInfo(RECORD), b"{}"))
    with pytest.warns(UserWarning, match="Duplicate"):
        path = draft.write(tmp_path / "a.zip")
    refused(path, "files differ")


def test_content_that_is_not_what_the_index_says(tmp_path, draft):
    for name in (draft.file_of("scores", ".npy"), draft.file_of("scores", ".json"), RECORD):
        changed = Draft(dict(draft.files))
        changed.list_files()
        data = bytearray(changed.files[name])
        data[-3] ^= 1
        changed.files[name] = bytes(data)
        refused(changed.write(tmp_path / "a.zip", honest=False), "does not have the SHA-256 of its index")


def test_a_file_that_is_no_archive_or_cut_off(tmp_path, packed):
    data, path = packed.read_bytes(), tmp_path / "a.zip"
    for cut in (0, 10, len(data) // 2, len(data) - 30):
        path.write_bytes(data[:cut])
        refused(path, "is damaged or no zip archive")


def test_a_flipped_byte_is_refused_or_changes_nothing(tmp_path, packed):
    """Dates, and what is written twice, stand in an archive too."""
    data, path, whole = packed.read_bytes(), tmp_path / "a.zip", Store(tmp_path / "whole")
    unpack(packed, whole)
    expected = arrays(whole.root)
    refusals = 0
    for number, position in enumerate(range(40, len(data) - 22, len(data) // 15)):
        damaged, there = bytearray(data), Store(tmp_path / f"cache-{number}")
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            unpack(path, there)
            assert arrays(there.root) == expected, position
        except GpruneError as error:
            refusals += 1
            assert len(str(error)) <= 300 and not [path for path in there.root.rglob("*") if path.is_file()]
    assert refusals > 10


def test_a_pack_larger_than_allowed_is_refused_before_it_is_extracted(tmp_path, draft, monkeypatch):
    name = draft.file_of("scores", ".npy")
    draft.files[name] = bytes(2**26)
    path = draft.write(tmp_path / "a.zip")
    refused(path, "more than the 0.1 GiB that are allowed: .* --largest", max_bytes=2**26)
    # allowed, it is read, and found to be no array
    refused(path, "cannot be read", max_bytes=2**27)
    monkeypatch.setattr(packs, "_MAX_JSON_BYTES", 100)
    refused(path, "index.json of the pack has [0-9]+ bytes")


def bytes_of(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "array",
    [
        lambda: bytes_of(np.array([{}], dtype=object), allow_pickle=True),
        lambda: bytes_of(np.array(["a"])),
        lambda: bytes_of(np.zeros(3)).replace(b"(3,)", b"(9,)"),
        lambda: b"\x80\x04K\x01.",
        lambda: bytes_of(np.zeros((2, 2))),
    ],
)
def test_arrays_that_are_none(tmp_path, draft, array):
    draft.files[next(name for name in draft.files if name.endswith("/ffn_mean.npy"))] = array()
    refused(draft.write(tmp_path / "a.zip"), r"a result of the pack \(\w+/\w+\) cannot be read")


INDEXES: list[tuple[object, str]] = [
    (b"", "is not JSON"),
    (b"[]", "holds no JSON object"),
    ({"format": "tar"}, "is no pack"),
    ({"version": 1}, "has version 1 of the format, and this program reads version 2: pack the run again"),
    ({"version": "2"}, "has version '2'"),
    ({"run": "../x"}, "cannot be called"),
    ({"run": 5}, "cannot be called"),
    ({"files": []}, "files differ"),
    ({"files": {"run.json": 5}}, "files differ"),
]


@pytest.mark.parametrize(("index", "words"), INDEXES)
def test_indexes_of_another_form(tmp_path, draft, index, words):
    if isinstance(index, bytes):
        draft.files[INDEX] = index
    else:
        draft.edit(INDEX, lambda values: values.update(index))
    refused(draft.write(tmp_path / "a.zip", honest=False), words)


RECORDS: list[tuple[dict, str]] = [
    ({"stages": []}, "run.json of the pack is no record of a run: stages must be"),
    ({"state": ["done"]}, "state must be"),
    ({"study": {"model": ["a"]}}, "a study of another version"),
    ({"provenance": {"inputs": {"model": "a"}}}, "does not say what the run has read"),
    ({"provenance": {}}, "does not say what the run has read"),
]


@pytest.mark.parametrize(("fields", "words"), RECORDS)
def test_records_of_another_form(tmp_path, draft, fields, words):
    draft.edit(RECORD, lambda values: values.update(fields))
    refused(draft.write(tmp_path / "a.zip"), words)


def test_results_of_another_run(tmp_path, draft):
    """A pack cannot put results under keys that its own run does not have."""
    for name in [entry for entry in draft.files if entry.startswith("results/drift/")]:
        draft.files[f"results/drift/{KEY}/{name.split('/')[3]}"] = draft.files.pop(name)
    refused(draft.write(tmp_path / "a.zip"), "of another run")
