"""A text of one's own: the arrays of a study with it as C, whose turn it is, what is said of a failure."""

from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
import tiny_study
from preview.conftest import Workshop
from waiting import wait_for

from gprune import pipeline
from gprune.app.preview import Client, OwnText, Source
from gprune.app.preview.worker.masked_model import MaskedModel
from gprune.app.preview.worker.messages import OWN_PAIRS
from gprune.app.preview.worker.own_text import drifts
from gprune.app.preview.worker_process import WorkerProcess
from gprune.data import texts as corpora
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph
from gprune.records import RankDrift
from gprune.store import Store
from gprune.study import from_dict
from gprune.system.errors import CorpusError, SettingsError

RAW = Path(wait_for.__code__.co_filename).read_bytes() * 6


@pytest.fixture(scope="module")
def source(built_once):
    """A run as far as its drift, of 16 sequences a text."""

    def build(folder):
        values = tiny_study.made(folder, device="cpu")
        pipeline.run(from_dict(values), Store(folder / "cache"), lambda *_: None, "drift")

    folder = built_once("own-text", build)
    texts = tuple(str(folder / "texts" / f"{name}.txt") for name in ("random", "inspect", "json"))
    study = from_dict(tiny_study.settings(str(folder / "model"), texts, device="cpu"))
    return Source(str(folder / "cache"), pipeline.opened(study, Store(folder / "cache")).graph)


def own(source, file, raw=RAW, samples=16, seed=0):
    file.write_bytes(raw)
    content = corpora.fingerprint(str(file), "calibration")
    inputs = replace(source.graph.inputs, calibration={**source.graph.inputs.calibration, "substitute": content})
    changes = {"substitute": "mine", "methods": ["dense"], "calibration.samples": samples, "seed": seed}
    graph = Graph(source.graph.study.with_settings(changes | {"evaluation.texts": []}), inputs)
    return OwnText(Source(source.root, graph), raw, file.suffix)


def study_at(text, place):
    """The study with the text where it is now; no key depends on the name of a file."""
    return replace(text.source.graph.study, substitute=str(place)).to_dict()


@pytest.mark.slow
@pytest.mark.parametrize("samples", [16, 9])
def test_the_arrays_are_those_of_a_study_with_the_text_as_c(source, tmp_path, samples):
    text, masked = own(source, tmp_path / "mine.txt", samples=samples), MaskedModel(source.model)
    there = sorted(Path(source.root).rglob("*.npy"))
    asked = {"folder": str(tmp_path / "into"), "study": study_at(text, tmp_path / "mine.txt")}
    keys = drifts(masked, {"own": asked | {"inputs": asdict(text.source.graph.inputs)}})
    assert sorted(Path(source.root).rglob("*.npy")) == there, "nothing of a text goes into the cache"

    study = text.source.graph.study.with_settings({"substitute": str(tmp_path / "mine.txt")})
    pipeline.run(study, Store(tmp_path / "cache"), lambda *_: None, "agreement")
    results = pipeline.opened(study, Store(tmp_path / "cache"))
    for name, pair in OWN_PAIRS.items():
        assert keys[name] == stages.drift(results.graph, *pair).key
        found, expected = (
            Store(tmp_path / "into").get("drift", keys[name], RankDrift),
            results.get(stages.drift, *pair),
        )
        for field in fields(RankDrift):
            np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name), name)
    # the next text is held against the same texts of the run, and this one is forgotten
    kept = {role: stages.statistics(results.graph, role).key in masked.kept for role in stages.graph.ROLES}
    assert kept == {"primary": True, "auxiliary": True, "substitute": False}
    assert not {keys["A | own"], keys["B | own"]} & set(masked.kept)


@pytest.mark.slow
def test_a_text_of_the_run_that_has_changed_is_not_read_under_its_old_key(source, tmp_path):
    changed = tmp_path / "inspect.txt"
    changed.write_bytes(Path(source.graph.study.auxiliary).read_bytes()[::-1])
    # with fewer sequences B is drawn anew
    text, masked = own(source, tmp_path / "mine.txt", samples=9), MaskedModel(source.model)
    study = study_at(text, tmp_path / "mine.txt") | {"auxiliary": str(changed)}
    asked = {"folder": str(tmp_path / "into"), "study": study}
    with pytest.raises(CorpusError, match=r"the text '.*inspect.txt' has changed since the run"):
        drifts(masked, {"own": asked | {"inputs": asdict(text.source.graph.inputs)}})
    assert not masked.kept


def drifts_of(model, message):
    """Leaves arrays that tell the text where the worker would."""
    folder = Path(message["own"]["folder"])
    (file,) = folder.iterdir()
    whole = np.full((2, 3), len(file.read_bytes()) % 97 / 100)
    for first, _ in OWN_PAIRS.values():
        Store(folder).put("drift", f"key-{first}", RankDrift(*[whole] * 6, *[np.ones(2)] * 4))
    return {"drifts": {name: f"key-{first}" for name, (first, _) in OWN_PAIRS.items()}}


@pytest.fixture
def workshop():
    return Workshop(drifts_of)


@pytest.fixture
def desk(workshop):
    made = Client(start=workshop.start, waits_for=workshop.waits_for)
    yield made
    made.close()


def settled(desk, asked):
    wait_for(lambda: desk.held(asked).phase in ("complete", "failed"), 30)
    return desk.held(asked)


def test_texts_are_measured_one_after_the_other_by_one_worker(source, tmp_path, desk, workshop):
    texts = [own(source, tmp_path / "mine.txt", RAW[: 1000 + n]) for n in range(3)]
    asked = [desk.hold(text, f"person {n}") for n, text in enumerate(texts)]
    found = [settled(desk, one) for one in asked]
    means = [float(one.drifts["A | own"].magnitude.mean()) for one in found]
    assert means == pytest.approx([(1000 + n) % 97 / 100 for n in range(3)])
    assert len(workshop.made) == 1 and len(workshop.sent) == 3
    # the same content again is known, and nothing lies where it was measured
    assert desk.hold(texts[0], "another person") == asked[0] and len(workshop.sent) == 3
    assert not any(Path(message["own"]["folder"]).exists() for message in workshop.sent)


def test_what_a_person_asks_next_takes_the_place_of_what_waits(source, tmp_path, desk, workshop):
    workshop.hold = True
    texts = [own(source, tmp_path / "mine.txt", RAW[: 2000 + n]) for n in range(3)]
    first = desk.hold(texts[0], "me")
    wait_for(lambda: workshop.sent, 30)
    second, other = desk.hold(texts[1], "me"), desk.hold(texts[2], "another person")
    third = desk.hold(own(source, tmp_path / "mine.txt", RAW[:2003]), "me")
    # what has its turn goes on, and so do the questions of others
    phases = [held and held.phase for held in map(desk.held, (first, second, other, third))]
    assert phases == ["measuring", None, "waiting", "waiting"]
    workshop.made[0].free.set()
    assert settled(desk, third).drifts and settled(desk, other).drifts and len(workshop.sent) == 3


def test_a_job_goes_before_and_a_failure_is_told(source, tmp_path, desk, workshop):
    workshop.reason = "live evaluation waits while a job is at work: Demo"
    asked = desk.hold(own(source, tmp_path / "mine.txt"), "me")
    wait_for(lambda: desk.held(asked).reason, 30)
    assert desk.held(asked).phase == "waiting" and not workshop.made
    workshop.reason = ""
    workshop.answer = lambda *_: {"problem": "the text is odd: bring another", "ready": True}
    assert settled(desk, asked).reason == "the text is odd: bring another"
    workshop.answer = drifts_of
    # asking again tries again
    assert settled(desk, desk.hold(own(source, tmp_path / "mine.txt"), "me")).drifts
    workshop.made[0].free.clear()
    lost = desk.hold(own(source, tmp_path / "mine.txt", RAW[:900]), "me")
    # a worker that ends before it has the text is only replaced by another one
    wait_for(lambda: len(workshop.sent) == 3, 30)
    workshop.made[0].die()
    assert settled(desk, lost).reason == "the process ended by itself: ask again"
    workshop.broken = "the model needs 9 GiB"
    refused = desk.hold(own(source, tmp_path / "mine.txt", RAW[:800]), "me")
    assert settled(desk, refused).reason == workshop.broken


def test_a_server_that_runs_no_foreign_code_measures_nothing_by_it(source, tmp_path, desk, monkeypatch):
    text = own(source, tmp_path / "mine.txt")
    graph = Graph(replace(text.source.graph.study, trust_remote_code=True), text.source.graph.inputs)
    monkeypatch.setattr("gprune.app.preview.client.require_trust", _refuses)
    with pytest.raises(SettingsError, match="not trusted"):
        desk.hold(replace(text, source=Source(source.root, graph)), "me")


def _refuses(wanted):
    if wanted:
        raise SettingsError("not trusted")


@pytest.mark.process
@pytest.mark.long
def test_the_true_worker_measures_a_text_and_says_what_it_cannot(source, tmp_path):
    desk = Client(start=WorkerProcess, waits_for=lambda *_: "")
    try:
        found = settled(desk, desk.hold(own(source, tmp_path / "mine.txt"), "me"))
        assert set(found.drifts) == set(OWN_PAIRS)
        assert 0 < found.drifts["A | own"].magnitude.mean() < 1
        short = settled(desk, desk.hold(own(source, tmp_path / "short.txt", b"one word"), "me"))
        assert "sequences" in short.reason or "blocks" in short.reason
    finally:
        desk.close()
