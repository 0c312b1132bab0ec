"""The report: its figures say what their cards say, and no text of anybody becomes a part of the page."""

import html
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pandas as pd
import plotly.graph_objects as go
import pytest
from app_driver import show
from synthetic_run import a_study, the_run, write_run

from gprune.__main__ import main
from gprune.app.report import gathering, making, origin
from gprune.app.report.gathering import Entry
from gprune.app.ui import paper_figure
from gprune.app.ui.text import plain, unmarked
from gprune.study import EvaluationSettings
from gprune.system.errors import SettingsError

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"quoted\" 'single' \u2028"


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    write_run(root)
    return the_run(root)


def test_a_figure_says_what_its_card_says(run, cache):
    app = show("rank_drift", cache)
    headings = [unmarked(one.value[5:]) for one in app.markdown if one.value.startswith("#### ")]
    captions = [unmarked(one.value) for one in app.caption]
    entries = gathering.gather(run, ("drift", "drift_by_layer", "correlation", "ranks"))
    assert [entry.page for entry in entries] == ["Rank drift"] * 4
    for entry in entries:
        assert entry.title in headings and entry.figure is not None
        # the page also says what a click does
        assert any(caption.startswith(entry.caption) for caption in captions)
    assert entries[0].table is not None and len(entries[0].table) == 200


def test_every_figure_is_drawn_or_says_why_not_as_it_is_set_on_its_page(run):
    entries = gathering.gather(run, gathering.names())
    assert {entry.name for entry in entries} == set(gathering.names())
    assert all((entry.figure is None) == bool(entry.problem) for entry in entries)
    asks = {entry.name for entry in entries if re.search("[Cc]lick", f"{entry.caption} {entry.how}")}
    assert asks <= {"quantiles", "modules"}, "a file cannot be clicked"
    told = {entry.name: entry.problem for entry in entries if entry.problem}
    # this run measured no speed, no task and no other split of its texts; all other figures have their result
    assert "on a text of the corpus of A or B and on an unseen one" in told.pop("generalization")
    assert "recovery.kind is none" in told.pop("recovery") == told.pop("recovery_learning")
    assert "nothing is chosen by measurement" in told.pop("choice")
    assert "no scales are learned for 'gprune': set repair.kind" in told.pop("scales")
    assert set(told) == {"speed", "answers"}
    assert all("is not there yet" in problem for problem in told.values())
    # a figure that only another view of its page shows has that view's words
    noise = next(entry for entry in entries if entry.name == "text_noise")
    assert noise.caption.startswith("Where the dotted line falls below a dashed one")
    assert len({entry.title for entry in entries}) == len(entries)
    plainly = gathering.gather(run, ("drift",))[0]
    values = {"rd_form": "histogram", "rd_bins": 30, "card": "rd_histogram"}
    asked = gathering.gather(run, ("drift",), values)[0]
    assert plainly.figure.data[0].type == "scatter" and asked.figure.data[0].type == "bar"
    assert len(asked.figure.data[0].x) == 30 and asked.figure.layout.height == plainly.figure.layout.height


def test_no_text_of_anybody_becomes_a_part_of_the_page(tmp_path):
    write_run(tmp_path, study=a_study(name=HOSTILE))
    run = the_run(tmp_path)
    figure = go.Figure(go.Bar(x=[HOSTILE], y=[1.0]))
    entry = Entry("n", *[HOSTILE] * 5, figure, pd.DataFrame({HOSTILE: [HOSTILE]}))
    harmless = Entry("n", *"ptcha", figure, pd.DataFrame({"x": ["y"]}))
    refused = Entry("m", "page", "title", problem=HOSTILE)
    page = making.as_html(origin.of(run), [entry, refused]).decode()
    plain_page = making.as_html(origin.of(run), [harmless, refused]).decode()
    tags, known = Tags(page).tags, Tags(plain_page).tags
    assert [name for name, _ in tags] == [name for name, _ in known]
    assert not any(key.startswith("on") for _, values in tags for key in values)
    assert "<img src=x" not in page and html.escape("<img src=x onerror=alert(2)>") in page
    assert not any(values.get("src") or values.get("href", "#")[:1] != "#" for _, values in tags)


def test_only_the_two_scripts_run_and_settings_and_versions_are_named(run):
    made = making.make(run, ("module_counts",))
    page = made.content.decode()
    metas = {values.get("http-equiv"): values.get("content") for _, values in Tags(page).tags}
    policy = metas["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("sha256-") == 2 and "'unsafe-inline'; img-src" in policy
    assert "unsafe-eval" not in policy and "http:" not in policy and "https:" not in policy
    assert made.figures == 1 and made.missing == {} and 4_000_000 < len(made.content) < 6_000_000
    assert page.count("plotly.js v") == 1
    found = origin.of(run, datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    page = making.as_html(found, gathering.gather(run, ("layers", "speed"))).decode()
    assert "Made 2026-01-02 03:04 UTC" in page and dict(found.settings)["metric"] == "flap"
    assert dict(found.writer)["gprune"] and "commit" in dict(found.writer)
    assert f"<pre>{html.escape(found.command, quote=True)}</pre>" in page
    assert "This figure could not be drawn: “measuring tokens a second” is not there yet." in page
    assert page.count("<section") == 3 and "1 figure of the run" in page
    for cards, got in ((("drift", "nothing"), "got 'nothing'"), ((HOSTILE,), "")):
        with pytest.raises(SettingsError, match=f"card must be one of .*{got}"):
            making.make(run, cards)


def test_the_command_writes_what_the_page_and_python_write(run, tmp_path, capsys):
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


def test_the_page_offers_every_figure_and_makes_what_is_chosen(cache):
    app = show("report_file", cache)
    chosen = app.multiselect(key="rp_cards_multiselect")
    assert len(chosen.options) == len(gathering.names()) and len(chosen.value) == 4
    app.multiselect(key="rp_cards_multiselect").set_value(["module_counts", "speed"]).run()
    app.button(key="rp_make").click().run(timeout=60)
    assert not app.exception and any("1 figure" in one.value and "MiB" in one.value for one in app.markdown)
    assert ["is not there yet" in one.value for one in app.warning] == [True]
    app.multiselect(key="rp_cards_multiselect").set_value([]).run()
    assert app.button(key="rp_make").disabled


def test_a_figure_for_a_paper_is_as_wide_as_a_column_and_its_numbers_are_those_drawn():
    drawn = go.Figure(go.Scattergl(x=[1.0, 2.0], y=[3.0, 4.0]))
    for columns, width in (("one", 321), ("two", 661)):
        made = paper_figure.fitted(drawn, columns)
        layout = made.layout
        assert (layout.width, made.data[0].type, layout.paper_bgcolor) == (width, "scatter", "white")
    assert drawn.data[0].type == "scattergl" and drawn.layout.width is None
    figure = go.Figure([go.Bar(x=[0, 1], y=[2.0, 3.0], name="a &amp; <b>b</b>"), go.Scatter(x=[5], y=[6.0])])
    figure.update_layout(xaxis_title="layer", yaxis_title="neurons")
    table = paper_figure.numbers_of(figure)
    assert table is not None and list(table.columns) == ["series", "layer", "neurons"]
    assert table.to_numpy().tolist() == [["a & b", 0, 2.0], ["a & b", 1, 3.0], ["", 5, 6.0]]
    cells = paper_figure.numbers_of(go.Figure(go.Heatmap(z=[[1, 2], [3, 4]], x=["p", "q"], y=["r", "s"])))
    assert cells is not None and cells.to_numpy().tolist()[1] == ["q", "r", 2]
    assert paper_figure.numbers_of(go.Figure()) is None


def test_words_are_read_back_and_a_figure_shown_on_every_text_is_there_for_every_text(tmp_path):
    for text in ("a_b*c* [x](http://y) $5$ <b> `q` :smile: C:\\temp", "3 % – ± “ok”", "1. a\n- b"):
        assert unmarked(plain(text)) == " ".join(text.split())
    evaluation = EvaluationSettings(texts=("python-reference", "c4"), windows=96)
    write_run(tmp_path, study=a_study(evaluation=evaluation))
    entries = gathering.gather(the_run(tmp_path), ["perplexity"])
    told = {entry.title.rpartition(" (")[2] for entry in entries}
    assert told == {"text python-reference)", "text c4)"} and len(entries) == 2
    assert all(entry.page == "Methods and studies" for entry in entries)
