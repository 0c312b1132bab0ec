"""The drift of a text of one's own on the page: what is drawn, what is told, and once with a real model."""

import json
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_study
from app_driver import charts, open_page, words
from browser import PLOT, expect, visiting
from synthetic_run import a_study, the_run, write_run

from gprune import pipeline
from gprune.analysis import own_text as analysis
from gprune.app.pages.calibration_data import own_drift, own_text
from gprune.app.preview import Held, client
from gprune.app.preview.worker.messages import OWN_PAIRS
from gprune.pipeline import stages
from gprune.pipeline.stages.inputs import read
from gprune.records import RankDrift
from gprune.store import Store
from gprune.study import CalibrationSettings, from_dict

PROSE = "Calibration text decides which neurons look important, so choose it with care. "
SHORT = a_study(calibration=CalibrationSettings(samples=32, length=16, shards=4))


class FakeClient:
    """Answers what a test says."""

    def __init__(self):
        self.asked = []
        self.known = Held("measuring")

    def hold(self, text, owner):
        self.asked.append(text)
        return text.identity

    def held(self, identity):
        return self.known


@pytest.fixture
def fake(monkeypatch):
    made = FakeClient()
    monkeypatch.setattr(client, "POOL", made)
    monkeypatch.setattr(own_drift, "seconds", lambda *_: 3.0)
    return made


def a_drift(level, floor, half=None):
    """Of 4 layers with 60 neurons, every one at the same drift."""
    whole, own = np.full((4, 60), level), np.full((4, 60), floor)
    halves = np.full((4, 60), level if half is None else half)
    rows = [np.linspace(0.9, 0.3, 4) * factor for factor in (1.0, 0.95)]
    return RankDrift(whole, whole, whole, own, own, halves, *rows, np.full(4, 0.97), np.full(4, 0.98))


FOUND = {"A | own": a_drift(0.2, 0.04), "B | own": a_drift(0.1, 0.04), "A | B": a_drift(0.15, 0.03)}


def brought(text):
    app = open_page("calibration_data")
    app.text_area(key="cd_own_text").set_value(text).run()
    assert not app.exception
    return app


def test_the_drift_is_drawn_beside_that_of_the_runs_texts(cache, fake):
    write_run(cache, study=SHORT)
    fake.known = Held("complete", drifts=FOUND)
    app = brought(PROSE * 40)
    said = words(app).replace("\\", "")
    assert "is nearer to B than to A: mean drift 0.100 and 0.200, where A and B are 0.150 apart" in said
    histogram, layers = charts(app)[-2:]
    names = ["A | own", "B | own", "A | B", "own re-sampled"]
    assert [trace["name"] for trace in histogram["data"]] == names == [one["name"] for one in layers["data"]]
    # 0.3 on whole sets; as every curve here, beside the halves of the text, it is of halves
    assert "Layer 3 ranks pasted text and A most differently: correlation 0.28 on halves" in said
    table = app.dataframe[-1].value
    assert table["mean drift"].tolist()[:3] == pytest.approx([0.2, 0.1, 0.15])
    assert table["mean drift, halves"].tolist() == pytest.approx([0.2, 0.1, 0.15, 0.04])
    (text,) = {one.identity: one for one in fake.asked}.values()
    assert text.raw == (PROSE * 40).encode() and text.suffix == ".txt"
    assert text.source.graph.study.calibration.samples == 32 and text.source.root == str(cache)


def test_every_curve_is_of_halves_like_the_control_and_the_finding_in_words():
    found = {"A | own": a_drift(0.2, 0.04, half=0.31), "A | B": a_drift(0.1, 0.04, half=0.12)}
    curves = {curve.name: curve for curve in analysis.curves(found, 50)}
    medians = {"A | own": 0.31, "A | B": 0.12, "own re-sampled": 0.04}
    assert {name: curve.median for name, curve in curves.items()} == pytest.approx(medians)
    table = analysis.layer_table(found)
    assert table["A | own"].tolist() == pytest.approx((np.linspace(0.9, 0.3, 4) * 0.95).tolist())
    assert table["own re-sampled"].tolist() == [0.98] * 4
    for first, second, said in (
        (0.2, 0.1, "Mine is nearer to B than to A"),
        (0.1, 0.102, "Mine is equally far from A and B"),
        (0.04, 0.3, "Mine cannot be told from A: two halves of it are 0.040 apart"),
        (0.04, 0.04, "Mine cannot be told from A or B"),
    ):
        found = {"A | own": a_drift(first, 0.04), "B | own": a_drift(second, 0.04)}
        assert analysis.headline(found, "Mine").startswith(said)


def test_fewer_sequences_are_drawn_of_all_three_texts(cache, fake):
    write_run(cache, study=SHORT)
    fake.known = Held("complete", drifts=FOUND)
    app = brought(PROSE * 12)
    study = fake.asked[0].source.graph.study
    counted = own_text.count([PROSE * 12], own_text.tokenizer("demo"))
    assert study.calibration.samples == len(counted.ids) // 16 < 32
    run = the_run(cache)
    assert stages.tokens(fake.asked[0].source.graph).key != stages.tokens(run.graph).key
    assert not app.error


def test_what_keeps_it_is_told(cache, fake):
    write_run(cache, study=SHORT)
    for held, said in (
        (Held("failed", "the memory is too small: close what else uses it"), "the memory is too small"),
        (
            Held("waiting", "live evaluation waits while a job is at work: Demo"),
            "waits while a job is at work",
        ),
        (Held("loading"), "reads the model"),
    ):
        fake.known = held
        app = brought(PROSE * 40)
        assert said in words(app) and len(charts(app)) == 2


def test_a_large_model_says_so_and_shows_what_its_jobs_have_measured(cache, fake, monkeypatch):
    write_run(cache, study=SHORT)
    monkeypatch.setattr(own_drift, "seconds", lambda *_: 240.0)
    app = brought(PROSE * 40)
    assert "takes longer, about 4 min 00 s, than a page should" in words(app).replace("\\", "")
    assert not fake.asked and app.button(key="cd_own_start_b")
    text = own_drift.Brought((PROSE * 40).encode(), "pasted text.txt", ".txt", 32)
    graph = own_drift.graph_of(the_run(cache), text)
    Store(cache).put("drift", stages.drift(graph, "primary", "substitute").key, FOUND["A | own"])
    told = words(brought(PROSE * 40)).replace("\\", "")
    assert "pasted text is 0.200 from A" in told and not fake.asked


@pytest.mark.parametrize("text", ["word", "🤖🎉 " * 3, "كلمة واحدة", "x" * (5 * 2**20 + 1)])
def test_too_small_and_too_large_texts_get_a_sentence(fake, text, name):
    app = brought(text)
    told = words(app).replace("\\", "")
    assert "needs at least 4 sequences" in told or "at most 5 MB are taken" in told
    assert not fake.asked and len(charts(app)) == 2


@pytest.mark.parametrize("text", ["🤖🎉🌍" * 60, "هذا نص من اليمين إلى اليسار. " * 30, "\x00\x07 odd " * 80])
def test_any_script_is_measured(cache, fake, text):
    write_run(cache, study=SHORT)
    fake.known = Held("complete", drifts=FOUND)
    app = brought(text)
    assert len(charts(app)) == 4 or "is a binary file" in words(app)


def test_a_text_of_the_run_itself_has_no_drift(cache, fake):
    name = write_run(cache, study=SHORT)
    file = cache / "runs" / name / "run.json"
    values = json.loads(file.read_text())
    content = own_drift._content.__wrapped__("", ".txt", (PROSE * 40).encode())
    values["provenance"]["inputs"]["calibration"]["auxiliary"] = content
    file.write_text(json.dumps(values))
    assert "the text is B itself, from which it has no drift" in words(brought(PROSE * 40)).replace("\\", "")


@pytest.mark.parametrize("usable", [9, 64])
def test_a_text_that_the_model_writes_is_known_as_a_study_of_so_many_sequences_knows_it(tmp_path, usable):
    study = from_dict(tiny_study.made(tmp_path, device="cpu", primary="self:#keep=0.5"))
    run = SimpleNamespace(study=study, graph=stages.Graph(study, read(study)))
    raw, file = (PROSE * 40).encode(), tmp_path / "mine.txt"
    file.write_bytes(raw)
    found = own_drift.graph_of(run, own_drift.Brought(raw, "mine.txt", ".txt", usable))
    as_a_job = own_drift.study_of(study, usable).with_settings({"substitute": str(file)})
    expected = stages.Graph(as_a_job, read(as_a_job))
    for pair in OWN_PAIRS.values():
        assert stages.drift(found, *pair).key == stages.drift(expected, *pair).key
    assert (stages.tokens(found).key == stages.tokens(run.graph).key) == (usable == 64)


def test_a_page_knows_what_a_text_would_take(cache):
    write_run(cache, study=SHORT)
    run, text = the_run(cache), own_drift.Brought(PROSE.encode(), "mine.txt", ".txt", 32)
    few = own_drift.seconds(run, own_drift.graph_of(run, text))
    many = replace(run, study=run.study.with_settings({"calibration.samples": 3200}))
    more = own_drift.seconds(many, own_drift.graph_of(many, replace(text, usable=3200)))
    # of 32 sequences A and B are there; of 3200 they are drawn anew
    assert few is not None and more is not None and more == pytest.approx(300 * few)
    offloaded = replace(run, study=replace(run.study, offload=True))
    assert own_drift.seconds(offloaded, own_drift.graph_of(run, text)) is None


@pytest.mark.browser
@pytest.mark.long
def test_a_pasted_text_shows_its_drift(chromium, built_once, cache):
    def build(folder):
        values = tiny_study.made(folder, device="cpu")
        pipeline.run(from_dict(values), Store(folder / "cache"), lambda *_: None, "drift")

    made = built_once("own-text-page", build) / "cache"
    with visiting(chromium, made) as visit:
        page = visit.page("calibration")
        field = page.locator(".st-key-cd_own_text textarea")
        text = "".join(random.Random(0).choices("abcdefgh ijklmnop.", k=4000))
        field.fill(text)
        field.press("Control+Enter")
        page.locator(f".st-key-cd_own_layers_chart {PLOT}").first.wait_for()
        heading = page.locator(".st-key-card_cd_own_drift h4")
        expect(heading).to_contain_text("pasted text")
        assert page.locator(".st-key-cd_own_drift_chart .js-plotly-plot").evaluate(
            "plot => plot._fullData.map(trace => trace.name)"
        ) == ["A | own", "B | own", "A | B", "own re-sampled"]
        # another text takes its place
        before = heading.inner_text()
        field.fill("Numbers and neurons, " * 200)
        field.press("Control+Enter")
        expect(heading).not_to_have_text(before)
    kept = [path for path in made.rglob("*") if path.is_file() and text[:60].encode() in path.read_bytes()]
    assert not kept and not (made / "texts" / "user").exists()
