"""A run goes from one cache into another: what arrives, what stays, what is said."""

import json
import zipfile

import numpy as np
import pytest
from synthetic_run import a_study, read, write_run

from gprune.__main__ import main
from gprune.pipeline import archive as packs
from gprune.pipeline import stages
from gprune.pipeline.archive import contents_form
from gprune.pipeline.archive.contents import graph_of
from gprune.pipeline.stages import KINDS, Results
from gprune.store import Store
from gprune.system.errors import SettingsError, StoreError


def arrays(root):
    """Every array of a cache, by its place."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.glob("*/*/*.npy")}


def change(root, name, **fields):
    path = root / "runs" / name / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.fixture
def here(tmp_path):
    """A cache with a run, and the run's name."""
    root = tmp_path / "here"
    return root, write_run(root)


def test_everything_but_model_texts_and_steps_arrives(tmp_path, here):
    root, name = here
    made = packs.write(Store(root), name, tmp_path / "a.zip")
    found = packs.unpack(tmp_path / "a.zip", Store(tmp_path / "there"))
    before, after = arrays(root), arrays(tmp_path / "there")
    unread = {kind for kind, known in KINDS.items() if known.holds_text or not known.on_pages}
    steps = {"contexts", "context_statistics", "weighed", "repaired", "candidate", "chosen"}
    assert unread == {"tokens", "positions", "questions", "sampled"} | steps
    assert after == {place: data for place, data in before.items() if place.split("/")[0] not in unread}
    assert found == packs.Unpacked(name, len(made.contents.results), 0)
    assert not (tmp_path / "there" / "checkpoint").exists()
    # what is beside a result arrives too
    there = Results(Store(tmp_path / "there"), graph_of(read(tmp_path / "there", name), "it"))
    drift = stages.drift(there.graph)
    own = Results(Store(root), there.graph).details(drift)
    assert there.details(drift)["seconds"] == own["seconds"] and there.details(drift)["torch"] == own["torch"]
    assert np.array_equal(there.get(stages.drift).magnitude, np.load(root / f"drift/{drift.key}/magnitude.npy"))


def test_a_pack_has_the_same_bytes_every_time(tmp_path, here):
    root, name = here
    first = packs.write(Store(root), name, tmp_path / "a.zip")
    packs.unpack(tmp_path / "a.zip", Store(tmp_path / "there"))
    (tmp_path / "later").mkdir()
    # also where it was unpacked
    assert packs.write(Store(tmp_path / "there"), name, tmp_path / "later" / "b.zip").sha256 == first.sha256
    with pytest.raises(SettingsError, match="is there already"):
        packs.write(Store(root), name, tmp_path / "a.zip")
    assert [path.name for path in (tmp_path / "later").iterdir()] == ["b.zip"]


def test_a_pack_tells_no_place_that_the_study_does_not_name(tmp_path):
    root = tmp_path / "secret-user" / "cache"
    name = write_run(root, study=a_study(primary="/named/by/the study.txt"))
    record = read(root, name)
    reason = f"there is no file '{tmp_path}/secret-user/tasks.jsonl': see /named/by/the study.txt"
    change(
        root,
        name,
        missing_tasks={"piqa": reason},
        owner={"host": "secret-user"},
        texts=record["texts"] | {"primary": f"the text {tmp_path}/secret-user/x.txt, 3 MB"},
        result=record["result"] | {"checkpoint": str(root / "checkpoint"), "retention": {"gprune": 0.5}},
    )
    packs.write(Store(root), name, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        texts = {one: archive.read(one) for one in archive.namelist() if one.endswith(".json")}
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert not [one for one, data in texts.items() if b"secret-user" in data]
    there = json.loads(texts[contents_form.RECORD])
    assert there["missing_tasks"]["piqa"] == "there is no file '…/tasks.jsonl': see /named/by/the study.txt"
    assert there["texts"]["primary"] == "the text …/x.txt, 3 MB" and "owner" not in there
    assert there["study"] == record["study"] and there["result"]["retention"] == {"gprune": 0.5}


def test_what_is_there_stays_and_another_run_is_not_replaced(tmp_path, here):
    root, name = here
    packs.write(Store(root), name, tmp_path / "a.zip")
    there, count = tmp_path / "there", len(packs.contents(Store(root), name).results)
    packs.unpack(tmp_path / "a.zip", Store(there))
    stamps = {path: path.stat().st_mtime_ns for path in there.glob("*/*/*.npy")}
    assert packs.unpack(tmp_path / "a.zip", Store(there)) == packs.Unpacked(name, 0, count)
    assert stamps == {path: path.stat().st_mtime_ns for path in there.glob("*/*/*.npy")}
    # the run that was computed here is not the one of the pack, which has no model
    change(root, name, seconds=5.0)
    record = (root / "runs" / name / "run.json").read_bytes()
    with pytest.raises(StoreError, match="holds another run called .* say --as NAME"):
        packs.unpack(tmp_path / "a.zip", Store(root))
    assert (root / "runs" / name / "run.json").read_bytes() == record
    assert packs.unpack(tmp_path / "a.zip", Store(root), name="beside").kept == count
    assert read(root, "beside")["run"] == "beside"
    with pytest.raises(SettingsError, match="cannot be called '../x'"):
        packs.unpack(tmp_path / "a.zip", Store(root), name="../x")


@pytest.mark.parametrize("moment", [0, 7, -1])
def test_an_interrupted_unpacking_leaves_nothing_half(tmp_path, here, monkeypatch, moment):
    root, name = here
    packs.write(Store(root), name, tmp_path / "a.zip")
    there = Store(tmp_path / "there")

    def stop(done, *_):
        if done == moment:
            raise KeyboardInterrupt

    def kept(*_):
        raise KeyboardInterrupt

    if moment == -1:
        # everything is kept but the run's record
        monkeypatch.setattr("gprune.pipeline.archive.reading.runs.save", kept)
    with pytest.raises(KeyboardInterrupt):
        packs.unpack(tmp_path / "a.zip", there, progress=stop)
    monkeypatch.undo()
    assert not list((there.root / "runs").iterdir())
    whole = [path for path in there.root.glob("*/*") if path.parent.name in KINDS]
    assert all(there.has(path.parent.name, path.name) for path in whole) and bool(whole) == (moment == -1)
    assert packs.unpack(tmp_path / "a.zip", there).kept == len(whole)


def test_slips_cost_one_sentence(tmp_path, here, capsys):
    root, name = here
    cases = (
        (["pack", "nothing", "--cache", str(root)], "there is no run 'nothing'"),
        (["pack", "../x", "--cache", str(root)], "is not a name of a stage or result"),
        (["pack", name, "--cache", str(root), "-o", str(tmp_path / "no" / "a.zip")], "does not exist"),
        (["unpack", str(tmp_path / "no.zip"), "--cache", str(tmp_path)], "No such file"),
        (["unpack", "x", "--largest", "-1"], "a number of GiB above 0"),
    )
    for words, said in cases:
        assert main(words) == 2
        told = capsys.readouterr().err
        assert said in told and told.startswith("error: ") and told.count("\n") == 1
    (next((root / "drift").iterdir()) / "magnitude.npy").write_bytes(b"short")
    change(root, name, stages=read(root, name)["stages"])
    assert main(["pack", name, "--cache", str(root), "-o", str(tmp_path / "a.zip")]) == 2
    assert "is damaged" in capsys.readouterr().err and not (tmp_path / "a.zip").exists()


def test_texts_and_steps_come_along_when_they_are_asked_for(tmp_path, here, capsys):
    root, name = here
    words = ["pack", name, "--cache", str(root), "-o", str(tmp_path / "a.zip")]
    assert main([*words, "--with-contexts", "--with-steps"]) == 0
    told = capsys.readouterr()
    assert "can be had back from the pack: 'python-reference', 'science-docs', 'python-code'" in told.err
    assert told.err.index("had back") < told.err.index("written")
    assert main(["unpack", str(tmp_path / "a.zip"), "--cache", str(tmp_path / "there")]) == 0
    assert f"{name}: " in capsys.readouterr().out
    assert arrays(tmp_path / "there") == arrays(root)


def test_a_run_without_an_end_is_no_run_at_work_elsewhere(tmp_path):
    root = tmp_path / "here"
    name = write_run(root, state="running", stages="drift")
    packs.write(Store(root), name, tmp_path / "a.zip")
    packs.unpack(tmp_path / "a.zip", Store(tmp_path / "there"))
    found = read(tmp_path / "there", name)
    assert (found["state"], found["error"]) == ("cancelled", "it was packed before it had ended")
