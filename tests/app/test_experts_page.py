"""The page Experts of a run that prunes experts, the other pages of such a run, and runs of neurons next to it."""

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_study
from app_driver import PAGES, charts, on, open_page, opened, plain_words, words
from fake_pool import FakePool
from preview.conftest import answered, handler_of
from synthetic_run import write_run
from tiny_experts import study_of

import gprune
from gprune import pipeline
from gprune.app import report
from gprune.app.pages import experts as experts_page
from gprune.app.preview import Question, Source
from gprune.app.preview.requests import resolve
from gprune.app.ui import derived_cache, frame, slides, story
from gprune.app.ui.page_names import PAGE_OF
from gprune.app.ui.panel import KNOWN
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, run_named
from gprune.store import Store
from gprune.study import from_dict
from gprune.system.errors import SettingsError

OF_NEURONS = {"card", "agreement", "decisions", "atlas", "rasa"}
"""places that have nothing to show for such a run"""


@pytest.fixture(scope="module")
def expert_root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experts")
    result = pipeline.run(from_dict(study_of(folder)), Store(folder / "cache"), tiny_study.silent)
    return folder / "cache", result["run"].rsplit("/", 1)[-1]


@pytest.fixture
def pool(monkeypatch):
    """Live answers at once; without it, every page would start a worker."""
    return FakePool().installed(monkeypatch)


@pytest.fixture
def experts(expert_root, pool, monkeypatch):
    """The run of experts, in the cache that the app uses."""
    root, name = expert_root
    monkeypatch.setenv("GPRUNE_CACHE", str(root))
    return run_named(str(root), name)


def labels_of_links(app):
    return [item.proto.label for item in app.get("page_link") if item.proto.label]


def test_every_page_of_such_a_run_works_or_refers_to_experts(experts):
    app = opened(layer="1")
    for place in PAGES:
        app = on(app, place)
        page, shown = PAGE_OF[place].url, words(app)
        assert not app.error, (place, [item.value for item in app.error])
        assert ("This run prunes experts." in shown) == (place in OF_NEURONS), place
        assert "Experts" in labels_of_links(app) and "Neurons" not in labels_of_links(app), place
        if page == "neurons":
            assert app.title[-1].value == "Experts"


def test_the_list_of_runs_and_a_finished_job_name_experts(experts):
    page = open_page("launch", run=experts.name, jobs_tab="runs")
    assert "REAP" in str(page.dataframe[0].value["best PPL"]) or "MAN" in str(page.dataframe[0].value["best PPL"])
    assert {"runs_clone_" + experts.name, "frame_slides"} <= {button.key for button in page.button}
    assert frame.describe_result(experts, None).startswith("At 50% retention, perplexity on ")


def test_figures_show_the_numbers_of_the_records(experts):
    page = open_page("map", run=experts.name, xp_quantity="score_b")
    heat_map, scatter, masks, shares = charts(page)
    scores = [experts.load(stages.expert_scores, "reap", text).values for text in stages.PAIR]
    assert np.allclose(decoded(heat_map["data"][0]["z"]), scores[1], rtol=1e-6)
    assert heat_map["data"][0]["y"] == ["0", "2"] and "score" not in heat_map["data"][0]["colorbar"]["title"]["text"]
    drift, adapted = experts.load(stages.expert_rank_drift, "reap"), experts.load(stages.adapted_experts, "reap")
    points = np.concatenate([np.stack([decoded(trace["x"]), decoded(trace["y"])], axis=1) for trace in scatter["data"]])
    assert np.allclose(
        np.sort(points, axis=0), np.sort(np.stack([drift.magnitude, scores[0]]).reshape(2, -1).T, axis=0)
    )
    assert [len(decoded(trace["x"])) for trace in scatter["data"]] == [
        (~adapted.adapted).sum(), (adapted.adapted & ~adapted.from_auxiliary).sum(), adapted.from_auxiliary.sum()
    ]  # fmt: skip
    assert {line.get("x0") for line in scatter["layout"]["shapes"]} >= {adapted.drift_threshold}
    assert adapted.score_threshold in {line.get("y0") for line in scatter["layout"]["shapes"]}

    methods = [name for name in experts.study.methods if name != "dense"]
    records = {name: experts.load(stages.expert_masks, name).experts for name in methods}
    kept = [decoded(trace["z"]).astype(bool) for trace in masks["data"]]
    assert all(np.array_equal(*pair) for pair in zip(kept, records.values(), strict=True))
    halves = [np.argsort(np.argsort(-score, axis=1), axis=1) < 6 for score in scores]
    assert np.array_equal(halves[0], records["experts_reap"])
    position = shares["data"][0]["x"].index("REAP")
    assert decoded(shares["data"][0]["y"])[position] == (halves[0] != halves[1]).mean() > 0

    for text in experts.study.evaluation.texts:
        table = open_page("compare", run=experts.name, cp_text=text).dataframe[0].value
        measured = [experts.load(stages.perplexity, name, text).perplexity for name in experts.study.methods]
        assert sorted(table.iloc[:, 2]) == sorted(measured)
        assert sorted(table["retention"]) == [*[50.0] * len(methods), 100.0]
    assert "does not adapt MAN" in words(open_page("map", run=experts.name, xp_criterion="man"))


def test_cards_of_a_run_without_masks_say_what_is_missing(experts):
    study = experts.study.with_settings({"retention": 0.75, "name": "early"})
    root = Path(experts.root)
    name = pipeline.run(study, Store(root), tiny_study.silent, until="drift")["run"].rsplit("/", 1)[-1]
    page = open_page("inspector", run=name)
    assert "Needs “masks of REAP”, which this run does not have." in words(page) and len(charts(page)) == 3
    assert sum(item.value.startswith("Needs “") for item in page.info) == 1 and not page.error
    shutil.rmtree(root / "runs" / name)


def test_the_worker_measures_a_model_with_one_decision_reversed(experts):
    source, text = Source(experts.root, experts.graph), experts.study.evaluation.texts[0]
    handler = handler_of(source)

    def measured(method, expert=None):
        request = resolve(source, Question(text, method, expert=expert))
        return request, answered(handler, request).losses

    for method in ("dense", "experts_reap"):
        request, losses = measured(method)
        stored = experts.load(stages.perplexity, method, text).losses
        assert np.array_equal(request.stored.losses, stored)
        # masked in the worker, cut by the run
        np.testing.assert_allclose(losses, stored, rtol=1e-5)
    masks = experts.load(stages.expert_masks, "experts_reap").experts
    for kept in (True, False):
        expert = tuple(int(index) for index in np.argwhere(masks == kept)[-1])
        request, changed = measured("experts_reap", expert)
        assert request.stored is None and np.abs(changed - losses).max() > 1e-6
        assert np.argwhere(request.arguments["pruning"] != masks).tolist() == [list(expert)]
    request, _ = measured("dense", (0, 3))
    assert np.argwhere(~request.arguments["pruning"]).tolist() == [[0, 3]]
    assert np.array_equal(measured("experts_reap")[1], losses)
    for question, problem in (
        (Question(text, "dense", expert=(2, 0)), "the model has no expert 0 in mixture 2"),
        (Question(text, "gprune"), "unknown method 'gprune': choose one of dense, experts_reap"),
    ):
        with pytest.raises(SettingsError, match=problem):
            resolve(source, question)


def test_the_chosen_expert_is_removed_live_and_shows_its_strongest_tokens(experts, pool):
    pool.more = 0.05
    page = open_page("inspector", run=experts.name, xp_layer="2", xp_expert="7")
    texts, names = (
        experts.study.evaluation.texts,
        [experts.study.text_name(text) for text in experts.study.evaluation.texts],
    )
    assert [(question, base) for question, base in pool.asked] == [
        (Question(text, "dense", fitted=False, expert=(1, 7)), Question(text, "dense", fitted=False)) for text in texts
    ]
    answer = pool.latest("0")
    values = {metric.label.replace("\\", ""): metric.value for metric in page.metric}
    assert values == {f"perplexity on {name}": f"{answer.perplexity:.2f}" for name in names}
    assert f"Without expert 7 of layer 2: {answer.verdict} on" in plain_words(page)
    assert "40 of 40 windows" in words(page)

    elements = [json.loads(item.proto.json) for item in page.get("bidi_component")]
    for element, role in zip(elements, stages.PAIR, strict=True):
        statistics, ids = experts.load(stages.expert_statistics, role), experts.load(stages.tokens, role).ids
        count = int((statistics.positions[1, 7] >= 0).sum())
        assert [item["value"] for item in element["passages"]] == [
            f"{v:#.3g}" for v in statistics.strengths[1, 7, :count]
        ]
        sequence, token = divmod(int(statistics.positions[1, 7, 0]), ids.shape[1])
        assert element["passages"][0]["where"] == f"sequence {sequence}, token {token}"
    peaks = [item["strength"] for element in elements for item in element["passages"]]
    assert max(peaks) == 1.0 and len(peaks) > 2

    masks = experts.load(stages.expert_masks, "experts_reap").experts
    removed = int(np.flatnonzero(~masks[0])[0])
    page = open_page("inspector", run=experts.name, xp_layer="0", xp_expert=str(removed), xp_model="experts_reap")
    assert f"With expert {removed} of layer 0" in words(page)
    assert pool.asked[-1] == (
        Question(texts[-1], "experts_reap", fitted=False, expert=(0, removed)),
        Question(texts[-1], "experts_reap", fitted=False),
    )
    pool.more, pool.asked = 0.0, []
    page.toggle(key="xp_live_toggle").set_value(False).run()
    assert pool.asked == [] and "Switch on “Live”" in words(page)
    assert "no measurable difference on any text" in words(open_page("inspector", run=experts.name))


def test_a_click_on_the_map_chooses_an_expert(experts, monkeypatch):
    page = open_page("inspector", run=experts.name)
    drift = experts.load(stages.expert_rank_drift, "reap").magnitude
    mixture, expert = np.unravel_index(np.nanargmax(drift), drift.shape)
    heat_map = charts(page)[0]
    assert f"expert {expert} of layer {(0, 2)[mixture]}" in words(page)
    assert heat_map["layout"]["shapes"][0]["x0"] == expert - 0.5
    chosen = {}
    monkeypatch.setattr(experts_page.address, "set_values", chosen.update)
    cells = decoded(heat_map["data"][1]["customdata"])
    assert len(cells) == drift.size
    experts_page._choose_expert({"customdata": cells[-1].tolist()})
    assert chosen == {"xp_layer": "2", "xp_expert": "11"}


def test_slides_are_numbered_without_those_on_neurons_and_the_report_has_the_figures_of_experts(experts):
    assert [slide.figure for slide in slides.slides_of(experts)] == [
        "cost",
        "expert_drift",
        "expert_dependence",
        "perplexity",
    ]
    for number, shown in (("1", "1 / 4"), ("3", "3 / 4"), ("8", "4 / 4")):
        page = opened(run=experts.name, slide=number)
        assert shown in words(page) and len(charts(page)) == 1 and not page.error
    made = report.make_report(experts)
    assert made.missing.keys() == {"answers", "speed"}
    names = {name for name in KNOWN if name.startswith("expert_")}
    assert len(names) == 6 and names <= set(report.figure_names(experts))
    assert all(f'data-name="{name}"'.encode() in made.content for name in names)
    assert "expert_drift" in gprune.open(experts.name, cache=experts.root).figures
    with pytest.raises(SettingsError, match="criterion must be one of reap, frequency, man"):
        KNOWN["expert_map"](experts, criterion="random")


def test_drift_is_that_of_the_records_with_a_bin_for_every_shift(experts):
    page = open_page("drift", run=experts.name, xp_criterion="man")
    histogram, layers = charts(page)
    record = experts.load(stages.expert_rank_drift, "man")
    shares = np.bincount(np.rint(11 * record.magnitude.ravel()).astype(int), minlength=12) / record.magnitude.size
    np.testing.assert_allclose(decoded(histogram["data"][0]["y"]), 100 * shares, rtol=1e-6)
    assert [trace["name"][:1] for trace in layers["data"]] and layers["data"][0]["x"] == ["0", "2"]
    np.testing.assert_allclose(decoded(layers["data"][0]["y"]), record.magnitude.mean(axis=1), rtol=1e-6)
    with pytest.raises(MissingResultError, match="the rank of an expert on both texts"):
        cold = replace(record, signed=np.full_like(record.signed, np.nan))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(derived_cache, "_load", lambda *_: cold)
            derived_cache.drift_curves.cache_clear()
            story.drift_distributions(experts)
    derived_cache.drift_curves.cache_clear()


def test_a_run_of_experts_is_compared_with_another_one_and_with_a_run_of_neurons(experts):
    root = Path(experts.root)
    study = experts.study.with_settings({"retention": 0.75, "name": "three quarters"})
    other = pipeline.run(study, Store(root), tiny_study.silent)["run"].rsplit("/", 1)[-1]
    neurons = write_run(root)
    try:
        page = _app_with_runs(experts.name, other)
        table = page.dataframe[0].value
        assert table["retention"].value_counts().to_dict() == {50.0: 5, 75.0: 5, 100.0: 1}
        assert "No winner: the retentions differ by 25.0%" in plain_words(page) and "experts and routers" in words(page)
        page = _app_with_runs(experts.name, neurons)
        assert {"REAP", "GPrune"} <= set(page.dataframe[0].value["method"])
        assert not page.dataframe[0].value["Δ"][page.dataframe[0].value["method"] == "GPrune"].any()
        assert "2 different dense models" in words(page)
    finally:
        for name in (other, neurons):
            shutil.rmtree(root / "runs" / name)


def _app_with_runs(*names):
    page = open_page("compare", run=names[0], cp_runs=list(names))
    assert not page.error
    return page


def test_export_offers_the_stock_folder_and_a_clone_fills_the_form(experts):
    page = open_page("export", run=experts.name)
    folder = experts.results.model_folder(stages.checkpoint(experts.graph, "experts_reap"))
    assert str(folder) in [item.value for item in page.code] and "The pruned model of REAP" in words(page)
    assert {"sx_write_experts_random"} <= {button.key for button in page.button}
    page = open_page("launch", run=experts.name, jobs_tab="runs")
    page.button(f"runs_clone_{experts.name}").click().run()
    assert not page.exception and page.multiselect("launch_methods").value == list(experts.study.methods)


def decoded(values):
    """An array of a figure, which Plotly writes as base64 or as a list."""
    if not isinstance(values, dict):
        return np.array(values)
    array = np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])
    return array.reshape([int(size) for size in values["shape"].split(",")]) if "shape" in values else array


def test_a_run_of_neurons_shows_no_trace_of_experts(experts, cache):
    root = Path(experts.root)
    name = write_run(root)
    try:
        for place in ("home", "inspector", "compare", "launch"):
            page = open_page(place, run=name)
            assert "Neurons" in labels_of_links(page) and "Experts" not in labels_of_links(page)
            assert "xperts" not in words(page)
            # the list of runs in the sidebar alone has the other run
            assert all(experts.study.name not in item.options for item in page.multiselect)
    finally:
        shutil.rmtree(root / "runs" / name)
