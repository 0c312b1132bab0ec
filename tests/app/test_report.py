"""The report: its figures say what their cards say, and no text of anybody becomes a part of the page."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
from app_driver import on, opened
from synthetic_run import a_study, write_run

from gprune.__main__ import main
from gprune.app.pages.rasa import sets
from gprune.app.report import document, gathering, making, origin
from gprune.app.report.gathering import Entry
from gprune.app.ui import figure_numbers, paper_figure
from gprune.app.ui.text import plain, unmarked
from gprune.pipeline.runs.opened import Run, all_runs
from gprune.study import EvaluationSettings
from gprune.study.settings import ReliabilitySettings
from gprune.system.errors import SettingsError

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"quoted\" 'single' \u2028"


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("report")
    write_run(root)
    return all_runs(str(root))[0][0]


def test_a_figure_says_what_its_card_says(run: Run, cache: Path) -> None:
    write_run(cache)
    app = on(opened(), "rank_drift")
    headings = [
        unmarked(one.value.removeprefix("#### ")) for one in app.markdown if one.value.startswith("####")
    ]
    captions = [unmarked(one.value) for one in app.caption]
    entries = gathering.gather(run, ("drift", "drift_by_layer", "correlation", "ranks"))
    assert [entry.page for entry in entries] == ["Rank drift"] * 4
    for entry in entries:
        assert entry.title in headings and entry.caption in captions and entry.figure is not None
    assert entries[0].table is not None and len(entries[0].table) == 200


def test_every_figure_is_drawn_or_says_why_not(run: Run) -> None:
    entries = gathering.gather(run, gathering.names())
    assert {entry.name for entry in entries} == set(gathering.names())
    assert all((entry.figure is None) == bool(entry.problem) for entry in entries)
    told = {entry.name: entry.problem for entry in entries if entry.problem}
    # this run measured no speed and no task, and every other figure has its result
    assert set(told) == {"speed", "answers"}
    assert all("is not there yet" in problem for problem in told.values())
    # a figure that only another view of its page shows has that view's words
    noise = next(entry for entry in entries if entry.name == "text_noise")
    assert noise.caption.startswith("Where the dotted line falls below a dashed one")
    assert len({entry.title for entry in entries}) == len(entries)


def test_what_is_set_on_a_page_is_what_the_report_shows(run: Run) -> None:
    plainly = gathering.gather(run, ("drift",))[0]
    asked = gathering.gather(
        run, ("drift",), {"rd_form": "histogram", "rd_bins": 30, "card": "rd_histogram"}
    )[0]
    assert plainly.figure is not None and asked.figure is not None
    assert plainly.figure.data[0].type == "scatter" and asked.figure.data[0].type == "bar"
    assert len(asked.figure.data[0].x) == 30 and asked.figure.layout.height == plainly.figure.layout.height


def test_threshold_sets_are_a_figure_with_their_table(run: Run) -> None:
    before = gathering.gather(run, ("threshold_sets",))[0]
    sets.SETS.save(run.root, sets.ThresholdSet("<b>strict</b>", ReliabilitySettings(drift_quantile=0.5)))
    found = gathering.gather(run, ("threshold_sets",))[0]
    assert before.figure is not None and found.figure is not None and found.table is not None
    assert list(found.table["set"]) == ["this run", "present lines", "<b>strict</b>"]
    assert found.title == "1 threshold set beside the present lines"
    counted = sum(sum(trace.x) for trace in found.figure.data)
    assert counted == found.table["adapted"].sum() > 0
    assert "&lt;b&gt;strict&lt;/b&gt;" in found.figure.layout.yaxis.ticktext


def test_no_text_of_anybody_becomes_a_part_of_the_page(tmp_path: Path) -> None:
    write_run(tmp_path, study=a_study(name=HOSTILE))
    run = all_runs(str(tmp_path))[0][0]
    figure = go.Figure(go.Bar(x=[HOSTILE], y=[1.0]))
    entry = Entry(
        "n", HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, figure, pd.DataFrame({HOSTILE: [HOSTILE]})
    )
    refused = Entry("m", "page", "title", problem=HOSTILE)
    page = document.page(origin.of(run), [entry, refused]).decode()
    plain_page = document.page(
        origin.of(run), [Entry("n", "p", "t", "c", "h", "a", figure, pd.DataFrame({"x": ["y"]})), refused]
    ).decode()
    tags, known = Tags(page).tags, Tags(plain_page).tags
    assert [name for name, _ in tags] == [name for name, _ in known]
    assert not any(key.startswith("on") for _, values in tags for key in values)
    assert "<img src=x" not in page and html.escape("<img src=x onerror=alert(2)>") in page
    assert not any(values.get("src") or values.get("href", "#")[:1] != "#" for _, values in tags)


def test_the_policy_lets_only_the_two_scripts_run(run: Run) -> None:
    made = making.make(run, ("module_counts",))
    page = made.content.decode()
    policy = next(
        values["content"] or ""
        for tag, values in Tags(page).tags
        if values.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("sha256-") == 2 and "'unsafe-inline'; img-src" in policy
    assert "unsafe-eval" not in policy and "http:" not in policy and "https:" not in policy
    assert made.figures == 1 and made.missing == {} and 4_000_000 < len(made.content) < 6_000_000
    assert page.count("plotly.js v") == 1


def test_it_names_settings_versions_and_when_it_was_made(run: Run) -> None:
    found = origin.of(run, datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    page = document.page(found, gathering.gather(run, ("layers", "speed"))).decode()
    assert "Made 2026-01-02 03:04 UTC" in page and dict(found.settings)["metric"] == "flap"
    assert dict(found.writer)["gprune"] and "commit" in dict(found.writer)
    assert f"<pre>{html.escape(found.command, quote=True)}</pre>" in page
    assert "This figure could not be drawn: “measuring tokens a second” is not there yet." in page
    assert page.count("<section") == 3 and "1 figure of the run" in page


@pytest.mark.parametrize(
    ("cards", "sentence"),
    [(("drift", "nothing"), "card must be one of .*got 'nothing'"), ((HOSTILE,), "card must be one of")],
)
def test_what_is_no_figure_is_refused(run: Run, cards: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        making.make(run, cards)


def test_the_command_writes_what_the_page_and_python_write(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import gprune

    place = ["--cache", run.root]
    file = tmp_path / "a.html"
    assert main(["report", run.name, "--cards", "drift", "layers", "-o", str(file), *place]) == 0
    assert f"{file}: 2 figures, " in capsys.readouterr().err
    given = gprune.open(run.name, cache=run.root).report(tmp_path / "b.html", cards=["drift", "layers"])
    made = re.compile(rb"Made [^<]* UTC")
    assert made.sub(b"", given.read_bytes()) == made.sub(b"", file.read_bytes())
    assert main(["report", "--list"]) == 0
    assert "drift               Rank drift: " in capsys.readouterr().out
    for words, sentence in (
        ([run.name], "a report needs a run and a file"),
        ([run.name, "-o", str(tmp_path / "a.txt")], "give a name that ends in .html (got 'a.txt')"),
        (["no-run", "-o", str(file)], "there is no run 'no-run'"),
        ([run.name, "-o", str(tmp_path / "missing" / "a.html")], "cannot be written"),
    ):
        assert main(["report", *words, *place]) == 2
        assert sentence in capsys.readouterr().err


def test_the_page_offers_every_figure_and_makes_what_is_chosen(cache: Path) -> None:
    write_run(cache)
    app = on(opened(), "report_file")
    chosen = app.multiselect(key="rp_cards_multiselect")
    assert len(chosen.options) == len(gathering.names()) and len(chosen.value) == 4
    app.multiselect(key="rp_cards_multiselect").set_value(["module_counts", "speed"]).run()
    app.button(key="rp_make").click().run(timeout=60)
    assert not app.exception and any("1 figure" in one.value and "MiB" in one.value for one in app.markdown)
    assert ["is not there yet" in one.value for one in app.warning] == [True]
    app.multiselect(key="rp_cards_multiselect").set_value([]).run()
    assert app.button(key="rp_make").disabled


def test_a_page_without_a_run_offers_nothing(cache: Path) -> None:
    app = on(opened(), "report_file")
    assert not app.exception and not app.multiselect


def test_a_figure_for_a_paper_has_a_columns_width_and_no_pixels() -> None:
    drawn = go.Figure(go.Scattergl(x=[1.0, 2.0], y=[3.0, 4.0]))
    for columns, width in (("one", 321), ("two", 661)):
        made = paper_figure.fitted(drawn, columns)
        assert (made.layout.width, made.data[0].type, made.layout.paper_bgcolor) == (
            width,
            "scatter",
            "white",
        )
    assert drawn.data[0].type == "scattergl" and drawn.layout.width is None


def test_the_numbers_of_a_figure_are_those_that_it_draws() -> None:
    figure = go.Figure([go.Bar(x=[0, 1], y=[2.0, 3.0], name="a &amp; <b>b</b>"), go.Scatter(x=[5], y=[6.0])])
    figure.update_layout(xaxis_title="layer", yaxis_title="neurons")
    table = figure_numbers.of(figure)
    assert table is not None and list(table.columns) == ["series", "layer", "neurons"]
    assert table.to_numpy().tolist() == [["a & b", 0, 2.0], ["a & b", 1, 3.0], ["", 5, 6.0]]
    cells = figure_numbers.of(go.Figure(go.Heatmap(z=[[1, 2], [3, 4]], x=["p", "q"], y=["r", "s"])))
    assert cells is not None and cells.to_numpy().tolist()[1] == ["q", "r", 2]
    assert figure_numbers.of(go.Figure()) is None


@pytest.mark.parametrize(
    "text", ["a_b*c* [x](http://y) $5$ <b> `q` :smile: C:\\temp", "3 % – ± “ok”", "1. a\n- b"]
)
def test_words_on_a_page_are_read_back_as_they_were(text: Any) -> None:
    assert unmarked(plain(text)) == " ".join(text.split())


def test_a_figure_that_a_page_shows_on_every_text_is_there_for_every_text(tmp_path: Path) -> None:
    evaluation = EvaluationSettings(texts=("python-reference", "c4"), windows=96)
    write_run(tmp_path, study=a_study(evaluation=evaluation))
    entries = gathering.gather(all_runs(str(tmp_path))[0][0], ["perplexity"])
    told = {entry.title.rpartition(" (")[2] for entry in entries}
    assert told == {"text python-reference)", "text c4)"} and len(entries) == 2
    assert all(entry.page == "Compare" for entry in entries)
