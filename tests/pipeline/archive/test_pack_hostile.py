"""Archives that are damaged or hostile: each refused in one sentence, and nothing is left on the disk."""

import io
import stat
import struct
import zipfile

import numpy as np
import pytest
from archive.drafts import Draft

from gprune.pipeline import archive as packs
from gprune.pipeline.archive import archive as archives
from gprune.pipeline.archive import contents_form
from gprune.store import Store
from gprune.system.errors import GpruneError


def refused(path, words, **how):
    """Reads an archive into an empty cache, which stays empty."""
    cache = path.parent / "cache"
    with pytest.raises(GpruneError, match=words) as told:
        packs.unpack(path, Store(cache), **how)
    assert len(str(told.value)) <= 300 and "\n" not in str(told.value)
    assert not [found for found in cache.rglob("*") if found.is_file()]
    assert not list(cache.glob("runs/.*"))


def bytes_of(array, **how):
    file = io.BytesIO()
    np.save(file, array, **how)
    return file.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "../outside.npy",
        "/etc/passwd",
        "results/masks/../../../x.npy",
        "results\\masks\\a\\ffn.npy",
        "C:\\x.npy",
        "results/masks/a/ffn.npy\0.txt",
        "results/masks/a/model.safetensors",
        "results/masks/a/other.npy",
        "results/masks/a/",
        "results/checkpoint/a/pruning.json",
        "results/unheard/a/ffn.npy",
        "results/masks/.hidden/ffn.npy",
        "run.json/",
        "n" * 5000,
    ],
)
def test_names_that_no_pack_has(tmp_path, draft, name):
    info = zipfile.ZipInfo("x")
    info.filename = name
    draft.more.append((info, b"x"))
    refused(draft.write(tmp_path / "a.zip"), "the pack holds|no result of that stage has")


def test_links_and_other_kinds_of_files(tmp_path, draft):
    name = draft.an_array("masks")
    for kind in (stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR):
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = 3, (kind | 0o777) << 16
        changed = Draft({one: data for one, data in draft.files.items() if one != name}, [(info, b"/etc/passwd")])
        refused(changed.write(tmp_path / "a.zip"), "is a link or no plain file")


def test_a_name_twice(tmp_path, draft):
    draft.more.append((zipfile.ZipInfo(contents_form.RECORD), b"{}"))
    with pytest.warns(UserWarning, match="Duplicate"):
        path = draft.write(tmp_path / "a.zip")
    refused(path, "'run.json' twice")


def test_content_that_is_not_what_the_index_says(tmp_path, draft):
    for name in (draft.an_array("scores"), draft.a_manifest("scores"), contents_form.RECORD):
        changed = Draft(dict(draft.files))
        changed.list_files()
        data = bytearray(changed.files[name])
        data[-3] ^= 1
        changed.files[name] = bytes(data)
        refused(changed.write(tmp_path / "a.zip", honest=False), "is not what its index says")
    draft.list_files()
    draft.files[contents_form.RECORD] += b" "
    refused(draft.write(tmp_path / "a.zip", honest=False), "bytes in the archive and")


def test_an_archive_cut_off_or_with_more_around_it(tmp_path, packed):
    data, path = packed.read_bytes(), tmp_path / "a.zip"
    for cut in (0, 10, len(data) // 2, len(data) - 30, len(data) - 1):
        path.write_bytes(data[:cut])
        refused(path, "no zip archive|does not end as")
    for whole in (data + b"more", data + data):
        path.write_bytes(whole)
        refused(path, "does not end as|does not begin")
    path.write_bytes(b"#!/bin/sh\n" + data)
    refused(path, "does not begin where its file begins")
    # a comment of the archive hides what stands in it
    path.write_bytes(data[:-2] + struct.pack("<H", 4) + b"more")
    refused(path, "does not end as")


def test_a_flipped_byte_is_refused_or_changes_nothing(tmp_path, packed):
    """Dates, and what is written twice, stand in an archive too."""
    data, path, whole = packed.read_bytes(), tmp_path / "a.zip", Store(tmp_path / "whole")
    packs.unpack(packed, whole)
    wanted = {one.relative_to(whole.root): one.read_bytes() for one in whole.root.glob("*/*/*.npy")}
    refusals = 0
    for number, place in enumerate(range(40, len(data) - 22, len(data) // 15)):
        damaged, there = bytearray(data), Store(tmp_path / f"cache-{number}")
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            packs.unpack(path, there)
            found = {one.relative_to(there.root): one.read_bytes() for one in there.root.glob("*/*/*.npy")}
            assert found == wanted, place
        except GpruneError as error:
            refusals += 1
            assert len(str(error)) <= 300 and not [one for one in there.root.rglob("*") if one.is_file()]
    assert refusals > 10


def test_a_bomb_by_ratio(tmp_path, draft, monkeypatch):
    monkeypatch.setattr(archives, "HARMLESS_BYTES", 2**20)
    monkeypatch.setattr(archives, "MOST_BYTES", 2**26)
    name = draft.an_array("scores")
    draft.files[name] = bytes(2**25)
    path = draft.write(tmp_path / "a.zip")
    refused(path, r"times its size, .* --largest 1 \(GiB\)")
    draft.files[name] = bytes(2**26)
    refused(draft.write(path), "more than the 0.1 GiB that are allowed")
    # allowed, it is read, and found to be no array
    refused(path, "is no array of numpy", largest=2**27)


def test_a_bomb_that_says_it_is_small(tmp_path, draft):
    """Sizes in the list of files and in the index are small; what comes out is not."""
    name = draft.an_array("scores")
    true = len(draft.files[name])
    draft.list_files()
    draft.files[name] = bytes(2**24)
    path = draft.write(tmp_path / "a.zip", honest=False)
    data = bytearray(path.read_bytes())
    for mark, gap in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = -1
        while (place := data.find(mark, place + 1)) >= 0:
            at = place + (30 if gap == 22 else 46)
            if data[at : at + len(name)] == name.encode():
                data[place + gap : place + gap + 4] = struct.pack("<L", true)
    path.write_bytes(data)
    refused(path, "is damaged|has more than|is not what its index says")


def test_a_bomb_by_count(tmp_path, draft, monkeypatch):
    monkeypatch.setattr(contents_form, "MOST_FILES", 20)
    refused(draft.write(tmp_path / "a.zip"), "lists [0-9]+ files, and a pack has at most 20")


def test_a_second_list_of_files_that_only_zipfile_would_read(tmp_path, draft, monkeypatch):
    """The small end lists two files; the large one before it, which zipfile prefers, lists them all."""
    path = draft.write(tmp_path / "pack.zip")
    data = path.read_bytes()
    end = len(data) - 22
    _, _, _, _, count, length, offset, _ = struct.unpack("<4s4H2LH", data[end:])
    large = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, offset)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    small = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2, 2, length + len(large + locator), offset, 0)
    path.write_bytes(data[:end] + large + locator + small)
    monkeypatch.setattr(contents_form, "MOST_FILES", count - 1)
    refused(path, f"lists {count} files, and a pack has at most {count - 1}")


def test_files_that_share_their_bytes(tmp_path, draft):
    path = draft.write(tmp_path / "a.zip", method=zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    # the second entry begins where the first does
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    path.write_bytes(data)
    refused(path, "lies over another file")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (lambda: bytes_of(np.array([{}], dtype=object), allow_pickle=True), "not numbers"),
        (lambda: bytes_of(np.array(["a"])), "not numbers"),
        (lambda: bytes_of(np.zeros(3, dtype=[("a", "f8")])), "not numbers"),
        (lambda: bytes_of(np.zeros(3)) + b"more", "not as long as its shape"),
        (lambda: bytes_of(np.zeros(3)).replace(b"(3,)", b"(9,)"), "not as long as its shape"),
        (lambda: b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, "is no array of numpy"),
        (lambda: b"\x80\x04K\x01.", "is no array of numpy"),
        (lambda: bytes_of(np.zeros((2, 2))), "is no sound ActivationStatistics"),
    ],
)
def test_arrays_that_are_none(tmp_path, draft, array, words):
    draft.files[next(name for name in draft.files if name.endswith("/ffn_mean.npy"))] = array()
    refused(draft.write(tmp_path / "a.zip"), words)


INDEXES: list[tuple[object, str]] = [
    (b"", "is not JSON"),
    (b"[" * 100_000, "nests too deeply"),
    (b"[]", "holds no JSON object"),
    (b'{"format": ' + b"9" * 5000 + b"}", "is not JSON"),
    ({"format": "tar"}, "is no pack of a run"),
    ({"version": 2}, "has the version 2"),
    ({"version": True}, "has the version True"),
    ({"version": "1"}, "has the version '1'"),
    ({"run": "../x"}, "no plain name"),
    ({"run": 5}, "no plain name"),
    ({"run": ".x"}, "no plain name"),
    ({"files": []}, "lists no run.json"),
    ({"files": {}}, "lists no run.json"),
    ({"files": {"run.json": 5}}, "files.run.json"),
    ({"files": {"run.json": {"size": -1, "sha256": "0" * 64}}}, "files.run.json"),
    ({"files": {"run.json": {"size": True, "sha256": "0" * 64}}}, "files.run.json"),
    ({"files": {"run.json": {"size": 1.5, "sha256": "0" * 64}}}, "files.run.json"),
    ({"files": {"run.json": {"size": 1, "sha256": "zz"}}}, "files.run.json"),
    ({"files": {"run.json": {"size": 1, "sha256": "0" * 64}, "../x": {}}}, "the pack holds '../x'"),
]


@pytest.mark.parametrize(("index", "words"), INDEXES)
def test_indexes_of_another_form(tmp_path, draft, index, words):
    if isinstance(index, bytes):
        draft.files[contents_form.INDEX] = index
    else:
        draft.edit(contents_form.INDEX, lambda values: values.update(index))
    refused(draft.write(tmp_path / "a.zip", honest=False), words)


RECORDS: list[tuple[dict, str]] = [
    ({"stages": []}, "stages must be"),
    ({"stages": {"drift": {"key": 5}}}, "stages.drift.key must be"),
    ({"state": ["done"]}, "state must be"),
    ({"seconds": "long"}, "seconds must be"),
    ({"started": 5}, "started must be"),
    ({"texts": {"primary": {}}}, "texts.primary must be"),
    ({"study": {}}, "a study of another version"),
    ({"study": {"model": ["a"]}}, "a study of another version"),
    ({"provenance": {"inputs": {"model": []}}}, "provenance.inputs.model must be"),
    ({"provenance": {"inputs": {"model": "a"}}}, "does not say what the run has read"),
    ({"provenance": {}}, "does not say what the run has read"),
    ({"packed": {"left_out": {"a": "b"}}}, "does not say what was left out"),
    ({"packed": None}, "does not say what was left out"),
]


@pytest.mark.parametrize(("fields", "words"), RECORDS)
def test_records_of_another_form(tmp_path, draft, fields, words):
    draft.edit(contents_form.RECORD, lambda values: values.update(fields))
    refused(draft.write(tmp_path / "a.zip"), words)


def test_manifests_of_another_form(tmp_path, draft):
    name = draft.a_manifest("perplexity")
    for change, words in (
        (lambda values: values.update(record="PruningMasks"), "is 'PruningMasks', not Perplexity"),
        (lambda values: values.pop("values"), "no sound Perplexity"),
        (lambda values: values.update(values=[]), "no sound Perplexity"),
        (lambda values: values["values"].pop("windows"), "no sound Perplexity"),
    ):
        changed = Draft(dict(draft.files))
        changed.edit(name, change)
        refused(changed.write(tmp_path / "a.zip"), words)
    del draft.files[name]
    refused(draft.write(tmp_path / "a.zip"), "has no manifest")


def test_results_of_another_run(tmp_path, draft):
    """A pack cannot put results under keys that its own run does not have."""
    for name in [one for one in draft.files if one.startswith("results/drift/")]:
        stage, key, file = name.split("/")[1:]
        draft.files[contents_form.place(stage, "0" * len(key), file)] = draft.files.pop(name)
    refused(draft.write(tmp_path / "a.zip"), "of another run")


@pytest.mark.parametrize("value", [np.nan, np.inf, -2.0, 1e300])
def test_drift_that_no_chart_can_show(tmp_path, draft, value):
    place = draft.an_array("drift").rpartition("/")[0] + "/magnitude.npy"
    array = np.load(io.BytesIO(draft.files[place]))
    draft.files[place] = bytes_of(np.full(array.shape, value))
    refused(draft.write(tmp_path / "a.zip"), "no sound RankDrift")


@pytest.mark.parametrize("name", ["size", "layer"])
@pytest.mark.parametrize("value", [-1, 2**62, 2**63 - 1])
def test_counts_that_would_make_numpy_write_outside_of_its_memory(tmp_path, draft, name, value):
    place = draft.an_array("modules").rpartition("/")[0] + f"/{name}.npy"
    array = np.load(io.BytesIO(draft.files[place]))
    draft.files[place] = bytes_of(np.full_like(array, value))
    refused(draft.write(tmp_path / "a.zip"), "no sound ModuleStatistics")


def test_an_encrypted_archive(tmp_path, packed):
    data = bytearray(packed.read_bytes())
    place = data.index(b"PK\x01\x02")
    data[place + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    refused(tmp_path / "a.zip", "is encrypted")


def test_files_and_index_that_differ(tmp_path, draft):
    for name in (draft.an_array("masks"), contents_form.INDEX):
        changed = Draft({one: data for one, data in draft.files.items() if one != name})
        refused(changed.write(tmp_path / "a.zip", honest=False), "differ over|has no index.json")


RAW = "\x1b]0;mine\x07\x1b[2J\x9b31m\u202e"
