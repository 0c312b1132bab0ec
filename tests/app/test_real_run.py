"""What the pipeline makes of a study is what every page finds of it, also where it was brought in a pack."""

import shutil

import pytest
import tiny_study
from app_driver import CHARTS, PAGES, charts, on, open_page, opened, plain_words, words
from synthetic_run import read, write_run

from gprune import pipeline
from gprune.analysis import decisions, whatif
from gprune.analysis.whatif import LabChoice
from gprune.app.figures import rasa
from gprune.app.figures.calibration_data import MEASURES
from gprune.app.pages import export as pack_card
from gprune.app.ui import asking, derived_cache
from gprune.app.ui.text import name_texts
from gprune.pipeline import packs, stages
from gprune.pipeline.runs.opened import all_runs
from gprune.pipeline.stages.rasa import COMPARISONS
from gprune.store import Store, provenance
from gprune.study import from_dict, run_name
from gprune.study.methods import METHODS

pytestmark = pytest.mark.slow
STUDIES = {
    "flap": {"metric": "flap"},
    "wanda_sp": {"metric": "wanda_sp", "retention": 0.6},
    "twflap": {"metric": "twflap"},
    "every method": {"methods": list(METHODS)},
}
EACH = [name if name == "flap" else pytest.param(name, marks=pytest.mark.long) for name in STUDIES]
MEASURED = "flap"
"""the study that is measured on a task and in speed as well"""


class Finished:
    """Runs on a model of two layers, in one cache; each is made when a test asks for it."""

    def __init__(self, root, studies):
        self.root, self.studies = root, studies
        self._made = set()

    def run(self, name):
        expected = run_name(self.studies[name])
        if expected not in self._made:
            pipeline.run(self.studies[name], Store(self.root), lambda *_: None)
            self._made.add(expected)
        return next(run for run in all_runs(str(self.root))[0] if run.name == expected)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    present, studies = tiny_study.workshop(folder, questions=9), {}
    for name, changes in STUDIES.items():
        values = tiny_study.settings(
            present["model"], present["texts"], substitute=present["texts"][2], name=name, **changes
        )
        if name == MEASURED:
            values["evaluation"] |= {"tasks": [present["questions"]], "speed": "cpu"}
        studies[name] = from_dict(values)
    return Finished(folder / "cache", studies)


@pytest.fixture
def app(finished, monkeypatch):
    """Opens the app on a study's run."""
    monkeypatch.setenv("GPRUNE_CACHE", str(finished.root))
    # no page starts the worker by itself
    monkeypatch.setattr(asking, "is_live_by_default", lambda *_: False)

    def open_on(name):
        return opened(run=finished.run(name).name)

    return open_on


@pytest.mark.parametrize("name", EACH)
def test_every_page_finds_all_that_it_draws(finished, app, name):
    expected = CHARTS | ({"speed": CHARTS["speed"] + 1} if name == MEASURED else {})
    visible = app(name)
    for page in PAGES:
        on(visible, page)
        assert visible.selectbox(key="frame_run").value == finished.run(name).name, page
        assert not visible.error, (page, [item.value for item in visible.error])
        assert "Needs “" not in words(visible), page
        assert len(charts(visible)) == expected[page], page


@pytest.mark.long
@pytest.mark.parametrize("name", [EACH[0], EACH[2]])
def test_every_table_and_every_measure_can_be_asked_for(app, name):
    visible = app(name)
    for page in PAGES:
        tables = [toggle.key for toggle in on(visible, page).toggle if toggle.label == "Table"]
        for key in tables:
            visible.toggle(key=key).set_value(True)
        before = len(visible.dataframe)
        visible.run()
        assert not visible.exception and not visible.error, page
        assert len(visible.dataframe) == before + len(tables), page
    chooser = on(visible, "calibration").selectbox(key="cd_measure_selectbox")
    assert list(chooser.options) == list(MEASURES.values())
    for measure in MEASURES:
        visible.selectbox(key="cd_measure_selectbox").set_value(measure).run()
        assert not visible.exception and not visible.error
        assert len(charts(visible)) == 1, measure


@pytest.mark.parametrize("name", EACH)
def test_a_run_has_the_comparisons_and_masks_of_its_study_and_the_page_decides_the_same_masks(finished, name, app):
    run = finished.run(name)
    plan = stages.execution_plan(run.graph)
    created = {stage.name: stage.key for stage in plan if stage.name not in run.unavailable}
    assert {name: entry["key"] for name, entry in run.stages.items()} == created
    assert run.complete and not run.outdated and set(run.expected_seconds) == {stage.name for stage in plan}
    assert all(run.results.holds(stage) for stage in plan if stage.name in created)
    missing = {METHODS[name].masks for name in run.study.methods if METHODS[name].decision != "none"}
    missing -= set(run.masks())
    assert missing == ({"llm_pruner"} if name == "every method" else set())
    comparisons = list(stages.agreements(run.graph))
    assert list(run.agreement().comparisons) == comparisons
    pairs = on(app(name), "agreement").multiselect(key="ma_pairs_multiselect")
    assert list(pairs.options) == [name_texts(COMPARISONS[comparison].title, run.study) for comparison in comparisons]
    result = derived_cache.masks_of(run, rasa.adapted_choice(run, run.study.reliability))
    changed = decisions.overlaps(run.load(stages.masks, "gprune"), result)
    assert not any(units.changed for units in changed.values())
    assert result.retention == run.load(stages.masks, "gprune").retention
    decision = [
        name
        for name in run.mask_names
        if not (METHODS[name].learns or METHODS[name].layered or METHODS[name].decision == "chosen")
    ]
    for method in decision:
        choice = LabChoice(method, run.study.retention, "primary", run.study.reliability)
        assert not whatif.obstacle(run.results, method, "primary"), method
        again, stored = derived_cache.masks_of(run, choice), run.load(stages.masks, method)
        changed = decisions.overlaps(stored, again)
        assert not any(units.changed for units in changed.values()), method
    assert decision or name != "every method"


def test_what_is_measured_is_shown(finished, app):
    run = finished.run(MEASURED)
    visible = on(app(MEASURED), "questions")
    table = next(item.value for item in visible.dataframe if "chance" in item.value)
    assert table["task"].tolist() == ["questions.jsonl"] and table["documents"].tolist() == ["9"]
    assert [name for name in table.columns if "±" in str(table[name][0])] == [
        "Dense",
        "GPrune",
        "FLAP",
        "FLAP, no bias compensation",
        "Wanda-sp",
    ]
    assert [row["model"] for row in run.load(stages.speed).rows[::3]] == list(run.study.methods)


@pytest.mark.long
def test_a_method_that_cannot_run_on_the_model_is_named_with_its_reason(app):
    visible = on(app("every method"), "compare")
    assert "Left out: LLM-Pruner (" in plain_words(visible)
    assert len(visible.dataframe[0].value) == len(METHODS)


@pytest.mark.long
def test_the_record_of_a_synthetic_run_has_the_form_of_a_real_one(finished, tmp_path):
    real = read(finished.root, finished.run("flap").name)
    synthetic = read(tmp_path, write_run(tmp_path))
    assert set(synthetic) == set(real)
    entries = [{frozenset(entry) - {"passes"} for entry in item["stages"].values()} for item in (synthetic, real)]
    assert entries[0] == entries[1]
    assert set(synthetic["provenance"]) <= set(real["provenance"])
    assert set(synthetic["provenance"]["inputs"]) == set(real["provenance"]["inputs"])
    assert set(provenance.versions()) <= set(real["provenance"])
    left_out = read(finished.root, finished.run("every method").name)["unavailable"]
    assert left_out and {frozenset(entry) for entry in left_out.values()} == {frozenset({"key", "reason"})}


@pytest.fixture(scope="module")
def brought(tmp_path_factory):
    """A pack, the folder in which its model and texts were, and the name of its run."""
    root = tmp_path_factory.mktemp("elsewhere")
    study = from_dict(tiny_study.made(root, third=True))
    store = Store(root / "cache")
    name = pipeline.run(study, store, lambda *_: None)["run"]
    packs.write_pack(store, packs.pack_contents(store, name), root / "run.zip")
    for folder in ("cache", "model", "texts"):
        shutil.rmtree(root / folder)
    return root / "run.zip", root, name


@pytest.fixture
def name(cache, brought):
    packs.unpack(brought[0], Store(cache))
    return brought[2]


@pytest.mark.long
def test_every_page_draws_it_and_says_what_did_not_come_along(name, brought):
    app = opened()
    rendered = {}
    for page in PAGES:
        text = on(app, page)
        assert not text.error, (page, [error.value for error in text.error])
        rendered[page] = len(charts(text))
    assert not list(brought[1].glob("*/"))
    assert rendered == CHARTS
    text = plain_words(on(app, "calibration"))
    assert "Needs “drawing calibration text random.txt”, which the pack of this run does not contain" in text
    assert "--with-contexts" in text
    text = words(on(app, "export"))
    assert "A pack contains no model" in text and "Finish" not in text


def test_what_needs_the_model_says_so(name, brought, started):
    app = open_page("rasa", rasa_live="1", rasa_keep="0.4")
    (note,) = [info.value for info in app.info if "no model folder" in info.value]
    assert note.startswith("Needs data that the pack of this run does not contain") and len(note) <= 300
    # a job would say the same, later and in its log
    app.button(key="rasa_prune").click().run()
    assert any("no model folder" in error.value for error in app.error)
    assert not started and not app.exception


def test_a_run_is_packed_from_its_page(cache, monkeypatch):
    name = write_run(cache)
    app = open_page("export")
    (button,) = [item for item in app.get("download_button") if "Pack this run" in item.proto.label]
    assert "KiB" in button.proto.label or "MiB" in button.proto.label
    assert f"python -m gprune pack {name}" in [code.value for code in app.code]
    created, present = cache / "a.zip", Store(cache / "there")
    created.write_bytes(pack_card.pack_bytes(str(cache), name))
    assert packs.unpack(created, present).run == name
    monkeypatch.setattr(pack_card, "MOST_PACKED", 1000)
    app = open_page("export")
    assert not [item for item in app.get("download_button") if "Pack" in item.proto.label]
    assert "Too large to download" in words(app)
