"""Report: chosen figures of a run, with their captions, numbers and settings, as one self-contained HTML file."""

import base64
import hashlib
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from gprune.analysis import comparison
from gprune.analysis.formatting import format_count
from gprune.analysis.table import Table
from gprune.app.figures import load_figures
from gprune.app.ui import chart_style, derived_cache
from gprune.app.ui.commands import command, field
from gprune.app.ui.page_names import NAMES
from gprune.app.ui.panel import KEYS, Panel, Selection, available_part
from gprune.app.ui.text import strip_markdown
from gprune.evaluation import protocol
from gprune.pipeline.runs.opened import Run
from gprune.store.provenance import versions
from gprune.study import field_names
from gprune.study.settings import require, require_choice
from gprune.system.errors import GpruneError, SettingsError, StoreError
from gprune.system.files import write_bytes
from gprune.system.safe_parsing import sentence

FIGURES = load_figures()
MOST_ROWS = 400
"""maximum number of rows of a table; a longer table shows its first rows and its number of rows"""
_THEMES = {"light": "plotly_white", "dark": "plotly_dark"}
"""Plotly template of each colour scheme"""


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """One figure of a report, or the reason why it is missing; all text is plain."""

    name: str
    """name of the figure"""
    page: str
    """the page that shows it"""
    title: str
    """the finding, or what the figure shows"""
    caption: str = ""
    """one line on how to read it"""
    how: str = ""
    """longer explanation"""
    alt: str = ""
    """text alternative of the figure, for screen readers"""
    figure: go.Figure | None = None
    table: pd.DataFrame | None = None
    """the numbers that the figure shows"""
    problem: str = ""
    """why it could not be drawn; empty if it was"""


def figure_names(run: Run | None = None) -> tuple[str, ...]:
    """Return the names of the figures of a run, by default of any run, in the order of the app's pages."""
    order = list(NAMES)
    names = [name for name in FIGURES if run is None or run.study.unit in FIGURES[name].units]
    return tuple(sorted(names, key=lambda name: order.index(_module_name(name))))


def page_of_figure(name: str) -> str:
    """Return the name of the page of a figure."""
    return NAMES[_module_name(name)]


def _module_name(name: str) -> str:
    """Return the name of the module that declares a figure, without its package; it is a key of NAMES."""
    return next(part for part in reversed(FIGURES[name].make.__module__.split(".")) if part in NAMES)


def describe_figure(name: str) -> str:
    """Return the first line of a figure's description."""
    return FIGURES[name].about


def gather_entries(run: Run, chosen: Sequence[str], values: Mapping[str, Any] | None = None) -> list[ReportEntry]:
    """Return the chosen figures with their captions and numbers, in the chosen order.

    A figure that a page shows several times, such as the perplexity on each text, has several entries. `values`
    are the settings of the pages, as in an address; missing ones have their default. Raises SettingsError if no
    figure is chosen or a name is unknown.
    """
    require(len(chosen) > 0, "cards", list(chosen), "one figure or more")
    for name in chosen:
        require_choice("card", name, figure_names(run))
    entries = [entry for name in dict.fromkeys(chosen) for entry in _make_entries(run, name, values or {})]
    titles = Counter(entry.title for entry in entries)
    # figures with the same title are told apart by their descriptions
    return [_extend_title(entry) if titles[entry.title] > 1 else entry for entry in entries]


def _make_entries(run: Run, name: str, values: Mapping[str, Any]) -> list[ReportEntry]:
    try:
        panels = [_make_panel(run, name, options) for options in _page_options(run, name, values)]
        suffixes = _title_suffixes(panels)
        return [_make_entry(name, panel, suffix) for panel, suffix in zip(panels, suffixes, strict=True)]
    except GpruneError as error:
        return [ReportEntry(name, page_of_figure(name), describe_figure(name), problem=sentence(error))]


def _page_options(run: Run, name: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the options of each figure that the page shows under a name; [{}], the defaults, if it shows none."""
    try:
        per_figure = list(FIGURES[name].read_options(run, values)) or [{}]
    except SettingsError:
        # the values in the address belong to another run
        per_figure = list(FIGURES[name].read_options(run, {})) or [{}]
    if "selected" not in FIGURES[name].options:
        return per_figure
    selected = Selection(*(values.get(key) for key in KEYS))
    return [options | {"selected": available_part(run, selected)[0]} for options in per_figure]


def _make_panel(run: Run, name: str, options: dict[str, Any]) -> Panel:
    """Return a panel, with default options if the options are not valid for this run."""
    try:
        return FIGURES[name](run, **options)
    except SettingsError:
        return FIGURES[name](run)


def _title_suffixes(panels: Sequence[Panel]) -> list[str]:
    """Return a suffix for the title of each panel: the options in which the panels differ, in parentheses, or empty."""
    calls = [panel.code.options if panel.code else {} for panel in panels]
    differing = sorted(
        option
        for option in {option for call in calls for option in call}
        if any(call.get(option) != calls[0].get(option) for call in calls)
    )
    descriptions = [", ".join(f"{name} {call[name]}" for name in differing if name in call) for call in calls]
    return [f" ({description})" if description else "" for description in descriptions]


def _make_entry(name: str, panel: Panel, title_suffix: str) -> ReportEntry:
    return ReportEntry(
        name,
        page_of_figure(name),
        strip_markdown(panel.title) + title_suffix,
        strip_markdown(panel.caption),
        strip_markdown(panel.how),
        strip_markdown(panel.alt) or strip_markdown(panel.caption) or describe_figure(name),
        panel.figure,
        panel.table() if panel.table is not None else None,
    )


def _extend_title(entry: ReportEntry) -> ReportEntry:
    """Return an entry whose title also has the description of its figure."""
    description = describe_figure(entry.name)
    return entry if entry.title == description else replace(entry, title=f"{entry.title}: {description}")


def as_html(run: Run, entries: Sequence[ReportEntry], moment: datetime | None = None) -> bytes:
    """Return the report of a run as a self-contained HTML file; `moment` is its time of creation, by default now."""
    title = f"Report of {run.title or run.name}"
    plotly, script = _load_scripts()
    parts = [
        "<!doctype html>",
        "<html lang='en'><head><meta charset='utf-8'>",
        f'<meta http-equiv="Content-Security-Policy" content="{_build_policy(plotly, script)}">',
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        "<meta name='referrer' content='no-referrer'>",
        f"<title>{_escape(title)}</title><style>{_read_asset('report.css')}</style></head>",
        f"<body><header><h1>{_escape(title)}</h1>{_summary_html(run, entries, moment or datetime.now(UTC))}</header>",
        _contents_html(entries),
        f"<main>{''.join(_section_html(number, entry) for number, entry in enumerate(entries, start=1))}",
        _origin_html(run),
        "</main>",
        _inert_json("themes", _theme_figures()),
        f"<script>{plotly}</script><script>{script}</script>",
        "</body></html>",
    ]
    # a name can contain an unpaired surrogate, which UTF-8 cannot encode
    return ("\n".join(parts) + "\n").encode("utf-8", "replace")


@cache
def _load_scripts() -> tuple[str, str]:
    """Return the scripts of Plotly and of the report, with line ends as a browser normalises them before hashing."""
    scripts = get_plotlyjs(), _read_asset("report.js")
    return scripts[0].replace("\r\n", "\n").replace("\r", "\n"), scripts[1]


def _build_policy(*scripts: str) -> str:
    """Return a content security policy that allows these scripts and no other."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _summary_html(run: Run, entries: Sequence[ReportEntry], moment: datetime) -> str:
    figures = format_count(sum(entry.figure is not None for entry in entries), "figure")
    minute = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    line = f"{figures} of the run {run.name} ({run.state}). Created {minute} by GPrune Studio."
    return f"<p class='soft'>{_escape(line)}</p>"


def _contents_html(entries: Sequence[ReportEntry]) -> str:
    links = "".join(
        f"<li><a href='#figure-{number}'>{_escape(entry.title)}</a></li>"
        for number, entry in enumerate(entries, start=1)
    )
    return (
        f"<nav aria-label='Contents'><ol>{links}</ol><p><a href='#origin'>Settings, versions and machine</a></p></nav>"
    )


def _section_html(number: int, entry: ReportEntry) -> str:
    """Return the HTML of a figure with its text and table, or of the reason why it is missing."""
    head = (
        f"<section id='figure-{number}' aria-labelledby='title-{number}'>"
        f"<p class='page'>{_escape(entry.page)}</p><h2 id='title-{number}'>{_escape(entry.title)}</h2>"
    )
    if entry.figure is None:
        return f"{head}<p>This figure could not be drawn: {_escape(entry.problem)}.</p></section>"
    alt = _escape(entry.alt)
    how = f"<details><summary>How to read</summary><p>{_escape(entry.how)}</p></details>"
    return (
        f"{head}<figure><div class='drawing' role='img' aria-label=\"{alt}\" "
        f"data-figure='data-{number}' data-name=\"{_escape(entry.name)}\"></div>"
        f"<noscript><p>{alt} (The figure itself needs JavaScript.)</p></noscript>"
        f"<figcaption>{_escape(entry.caption)}</figcaption></figure>"
        f"{how if entry.how else ''}{_table_html(entry)}"
        f"{_inert_json(f'data-{number}', _figure_json(entry.figure))}</section>"
    )


def _table_html(entry: ReportEntry) -> str:
    table = entry.table
    if table is None or not len(table.columns):
        return ""
    first_rows = table.head(MOST_ROWS)
    rest = (
        f"<p class='soft'>The first {len(first_rows):,} of {len(table):,} rows.</p>"
        if len(first_rows) < len(table)
        else ""
    )
    return (
        f"<details><summary>Table: {len(table):,} rows</summary>{rest}"
        f"<div class='wide' tabindex='0' role='region' aria-label=\"numbers of {_escape(entry.title)}\">"
        f"{Table(first_rows).html()}</div></details>"
    )


def _origin_html(run: Run) -> str:
    """Return the HTML of the settings, protocols, versions and machine that are needed to reproduce the numbers."""
    record: Mapping[str, Any] = run.record
    texts = {f"text: {role}": description for role, description in (record.get("texts") or {}).items()}
    provenance = {key: value for key, value in (record.get("provenance") or {}).items() if key != "inputs"}
    protocols = "".join(f"<li>{_escape(line)}</li>" for line in _protocols(run))
    return (
        "<section id='origin'><h2>Settings, versions and machine</h2><p>The command that reproduces the "
        f"run:</p><pre>{_escape(command(run.study))}</pre>"
        + (f"<p>Measurement protocols:</p><ul>{protocols}</ul>" if protocols else "")
        + _key_value_table("Settings of the run", {name: field(run.study, name) for name in field_names()})
        + _key_value_table(
            "Texts, versions and machine of the run", {"started": record.get("started"), **texts, **provenance}
        )
        + _key_value_table("Versions that wrote this report", versions())
        + "</section>"
    )


def _protocols(run: Run) -> list[str]:
    try:
        rows = comparison.rows(derived_cache.measurements(run))
    except GpruneError:
        # the figures show which result is damaged
        return []
    return list(protocol.lines(cell.stamp for row in rows for cell in row.cells.values()))


def _key_value_table(title: str, pairs: Mapping[str, Any]) -> str:
    lines = "".join(
        f"<tr><th scope='row'>{_escape(name)}</th><td>{_escape(_format_value(value))}</td></tr>"
        for name, value in pairs.items()
    )
    return (
        f"<details><summary>{_escape(title)}</summary><div class='wide' tabindex='0' role='region' "
        f"aria-label=\"{_escape(title)}\"><table class='pairs'>{lines}</table></div></details>"
    )


def _format_value(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None or value == "" else str(value)


def _figure_json(figure: go.Figure) -> str:
    """Return a figure as Plotly JSON without theme and width, which the page sets."""
    copy = chart_style.without_webgl(figure).update_layout(template="none", width=None)
    return str(copy.to_json())


def _theme_figures() -> str:
    """Return JSON of an empty figure for each theme, from which the script takes the template."""
    figures = {name: go.Figure(layout={"template": template}) for name, template in _THEMES.items()}
    return "{" + ",".join(f'"{name}":{figure.to_json()}' for name, figure in figures.items()) + "}"


def _inert_json(name: str, text: str) -> str:
    """Return JSON in a script element that is not executed; its text is escaped so that it cannot end the element."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"<script type='application/json' id='{name}'>{text}</script>"


def _escape(value: object) -> str:
    return html.escape(str(value), quote=True)


def _read_asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Report:
    """A finished report."""

    content: bytes
    """the HTML file"""
    figures: int
    """number of its figures that could be drawn"""
    missing: dict[str, str]
    """reason for each missing figure, by name"""


def make_report(run: Run, cards: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> Report:
    """Make the report of a run with the figures `cards`, by default all; see `gather_entries` for values and errors."""
    entries = gather_entries(run, cards or figure_names(run), values)
    missing = {entry.name: entry.problem for entry in entries if entry.figure is None}
    # a report of all figures leaves out those that cannot be drawn; a chosen figure is listed with the reason
    listed_entries = [entry for entry in entries if entry.figure is not None or cards]
    return Report(as_html(run, listed_entries), len(entries) - len(missing), missing)


def require_html_name(path: Path) -> None:
    """Raise SettingsError if the name of a report does not end in .html or .htm."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise SettingsError(f"the name of a report must end in .html (got {path.name!r})")


def save_report(report: Report, path: Path) -> None:
    """Write a report to a file in one step. Raises StoreError if the file cannot be written."""
    try:
        write_bytes(path, report.content)
    except OSError as error:
        raise StoreError(
            f"{str(path)!r} cannot be written ({error.strerror or error}): choose another folder"
        ) from error
