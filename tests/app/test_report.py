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
from gprune.app import report
from gprune.app.report import ReportEntry
from gprune.app.ui import chart_style
from gprune.app.ui.commands import command
from gprune.app.ui.text import escape, strip_markdown
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
    app = show("drift", cache)
    headings = [strip_markdown(item.value[5:]) for item in app.markdown if item.value.startswith("#### ")]
    captions = [strip_markdown(item.value) for item in app.caption]
    entries = report.gather_entries(run, ("drift", "drift_by_layer", "ranks"))
    assert [entry.page for entry in entries] == ["Drift"] * 3
    for entry in entries:
        assert entry.title in headings and entry.figure is not None
        # the page also says what a click does
        assert any(caption.startswith(entry.caption) for caption in captions)
    assert entries[0].table is not None and len(entries[0].table) == 50


def test_every_figure_is_drawn_or_says_why_not_as_it_is_set_on_its_page(run):
    entries = report.gather_entries(run, report.figure_names(run))
    assert {entry.name for entry in entries} == set(report.figure_names(run))
    assert all((entry.figure is None) == bool(entry.problem) for entry in entries)
    asks = {entry.name for entry in entries if re.search("[Cc]lick", f"{entry.caption} {entry.how}")}
    assert asks <= {"modules"}, "a file cannot be clicked"
    message = {entry.name: entry.problem for entry in entries if entry.problem}
    # this run measured no speed and no task; all other figures have their result
    assert "recovery.kind is none" in message.pop("recovery") == message.pop("recovery_learning")
    assert "chooses nothing by measurement" in message.pop("choice")
    assert "no scales are learned for 'gprune': set repair.kind" in message.pop("scales")
    assert set(message) == {"speed", "answers"}
    assert all("is not there yet" in problem for problem in message.values())
    # a figure that only another view of its page shows has that view's words
    (modules,) = (entry.title for entry in entries if entry.name == "explained")
    assert re.fullmatch(r"The modules .* variance \((before refinement \d+%, )random modules \d+%\)", modules)
    noise = next(entry for entry in entries if entry.name == "text_noise")
    assert noise.caption.startswith("Where the dotted curve is below a dashed line, sampling drift is less than 25%")
    assert len({entry.title for entry in entries}) == len(entries)
    plainly = report.gather_entries(run, ("drift",))[0]
    values = {"rd_bins": 30, "card": "rd_histogram"}
    requested = report.gather_entries(run, ("drift",), values)[0]
    assert len(plainly.figure.data[0].x) == 50 and requested.figure.data[0].type == "bar"
    assert len(requested.figure.data[0].x) == 30 and requested.figure.layout.height == plainly.figure.layout.height


def test_no_text_of_anybody_becomes_a_part_of_the_page(tmp_path):
    write_run(tmp_path, study=a_study(name=HOSTILE))
    run = the_run(tmp_path)
    figure = go.Figure(go.Bar(x=[HOSTILE], y=[1.0]))
    entry = ReportEntry("n", *[HOSTILE] * 5, figure, pd.DataFrame({HOSTILE: [HOSTILE]}))
    harmless = ReportEntry("n", *"ptcha", figure, pd.DataFrame({"x": ["y"]}))
    refused = ReportEntry("m", "page", "title", problem=HOSTILE)
    page = report.as_html(run, [entry, refused]).decode()
    plain_page = report.as_html(run, [harmless, refused]).decode()
    tags, reference = Tags(page).tags, Tags(plain_page).tags
    assert [name for name, _ in tags] == [name for name, _ in reference]
    assert not any(key.startswith("on") for _, values in tags for key in values)
    assert "<img src=x" not in page and html.escape("<img src=x onerror=alert(2)>") in page
    assert not any(values.get("src") or values.get("href", "#")[:1] != "#" for _, values in tags)


def test_only_the_two_scripts_run_and_settings_and_versions_are_named(run):
    created = report.make_report(run, ("module_counts",))
    page = created.content.decode()
    metas = {values.get("http-equiv"): values.get("content") for _, values in Tags(page).tags}
    policy = metas["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("sha256-") == 2 and "'unsafe-inline'; img-src" in policy
    assert "unsafe-eval" not in policy and "http:" not in policy and "https:" not in policy
    assert created.figures == 1 and created.missing == {} and 4_000_000 < len(created.content) < 6_000_000
    assert page.count("plotly.js v") == 1
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    page = report.as_html(run, report.gather_entries(run, ("movers", "speed")), moment).decode()
    assert "Created 2026-01-02 03:04 UTC" in page and "<th scope='row'>metric</th><td>flap</td>" in page
    assert all(f"<th scope='row'>{name}</th>" in page for name in ("gprune", "commit", "started"))
    assert f"<pre>{html.escape(command(run.study), quote=True)}</pre>" in page
    assert "This figure could not be drawn: “measuring tokens per second” is not there yet." in page
    assert page.count("<section") == 3 and "1 figure of the run" in page
    for cards, got in ((("drift", "nothing"), "got 'nothing'"), ((HOSTILE,), "")):
        with pytest.raises(SettingsError, match=f"card must be one of .*{got}"):
            report.make_report(run, cards)


def test_the_command_writes_what_the_page_and_python_write(run, tmp_path, capsys):
    import gprune

    location = ["--cache", run.root]
    file = tmp_path / "a.html"
    assert main(["report", run.name, "--cards", "drift", "movers", "-o", str(file), *location]) == 0
    assert f"{file}: 2 figures, " in capsys.readouterr().err
    supplied = gprune.open(run.name, cache=run.root).report(tmp_path / "b.html", cards=["drift", "movers"])
    created = re.compile(rb"Created [^<]* UTC")
    assert created.sub(b"", supplied.read_bytes()) == created.sub(b"", file.read_bytes())
    assert main(["report", "--list"]) == 0
    assert "drift               Drift: " in capsys.readouterr().out
    for words, sentence in (
        ([run.name], "a report needs a run and a file"),
        ([run.name, "-o", str(tmp_path / "a.txt")], "must end in .html (got 'a.txt')"),
        (["no-run", "-o", str(file)], "there is no run 'no-run'"),
        ([run.name, "-o", str(tmp_path / "missing" / "a.html")], "cannot be written"),
    ):
        assert main(["report", *words, *location]) == 2
        assert sentence in capsys.readouterr().err


def test_the_page_offers_every_figure_and_makes_what_is_chosen(cache):
    app = show("report", cache)
    chosen = app.multiselect(key="rp_cards_multiselect")
    assert len(chosen.options) == len(report.figure_names(the_run(cache))) and len(chosen.value) == 3
    app.multiselect(key="rp_cards_multiselect").set_value(["module_counts", "speed"]).run()
    app.button(key="rp_make").click().run(timeout=60)
    assert not app.exception and any("1 figure" in item.value and "MiB" in item.value for item in app.markdown)
    assert ["is not there yet" in item.value for item in app.warning] == [True]
    app.multiselect(key="rp_cards_multiselect").set_value([]).run()
    assert app.button(key="rp_make").disabled


def test_a_figure_for_a_paper_is_as_wide_as_a_column():
    rendered = go.Figure(go.Scattergl(x=[1.0, 2.0], y=[3.0, 4.0]))
    for columns, width in (("one", 321), ("two", 661)):
        created = chart_style.fit_to_paper(rendered, columns)
        layout = created.layout
        assert (layout.width, created.data[0].type, layout.paper_bgcolor) == (width, "scatter", "white")
    assert rendered.data[0].type == "scattergl" and rendered.layout.width is None


def test_words_are_read_back_and_a_figure_shown_on_every_text_is_there_for_every_text(tmp_path):
    for text in ("a_b*c* [x](http://y) $5$ <b> `q` :smile: C:\\temp", "3% – ± “ok”", "1. a\n- b"):
        assert strip_markdown(escape(text)) == " ".join(text.split())
    evaluation = EvaluationSettings(texts=("python-reference", "c4"), windows=96)
    write_run(tmp_path, study=a_study(evaluation=evaluation))
    entries = report.gather_entries(the_run(tmp_path), ["perplexity"])
    message = {entry.title.rpartition(" (")[2] for entry in entries}
    assert message == {"text python-reference)", "text c4)"} and len(entries) == 2
    assert all(entry.page == "Methods" for entry in entries)
