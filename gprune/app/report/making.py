"""The report of a run: one way for the page, the command line and the Python API."""

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from gprune.analysis.formatting import counted
from gprune.analysis.table import Table
from gprune.app.report import gathering, origin
from gprune.app.report.gathering import Entry
from gprune.app.report.origin import Origin, Pairs
from gprune.app.ui import paper_figure
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import SettingsError, StoreError
from gprune.system.files import write_bytes

MOST_ROWS = 400
"""rows of a table; of a longer one the first are shown, and how many there are is said"""
_LOOKS = {"light": "plotly_white", "dark": "plotly_dark"}


def as_html(origin: Origin, entries: Sequence[Entry]) -> bytes:
    """The file."""
    title = f"Report of {origin.title}"
    plotly, drawing = _scripts()
    parts = [
        "<!doctype html>",
        "<html lang='en'><head><meta charset='utf-8'>",
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(plotly, drawing)}">',
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        "<meta name='referrer' content='no-referrer'>",
        f"<title>{_safe(title)}</title><style>{_read('looks.css')}</style></head>",
        f"<body><header><h1>{_safe(title)}</h1>{_summary(origin, entries)}</header>",
        _contents(entries),
        f"<main>{''.join(_section(number, entry) for number, entry in enumerate(entries, start=1))}",
        _origin(origin),
        "</main>",
        _data("looks", _looks()),
        f"<script>{plotly}</script><script>{drawing}</script>",
        "</body></html>",
    ]
    # a name from elsewhere may hold half a surrogate pair
    return ("\n".join(parts) + "\n").encode("utf-8", "replace")


@cache
def _scripts() -> tuple[str, str]:
    """Plotly, and what draws with it, as a browser counts their hashes: line ends are single."""
    found = get_plotlyjs(), _read("drawing.js")
    return found[0].replace("\r\n", "\n").replace("\r", "\n"), found[1]


def _policy(*scripts: str) -> str:
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _summary(origin: Origin, entries: Sequence[Entry]) -> str:
    count = sum(entry.figure is not None for entry in entries)
    figures = counted(count, "figure")
    line = f"{figures} of the run {origin.run} ({origin.state}). Made {origin.made} by GPrune Studio."
    return f"<p class='soft'>{_safe(line)}</p>"


def _contents(entries: Sequence[Entry]) -> str:
    links = "".join(
        f"<li><a href='#figure-{number}'>{_safe(entry.title)}</a></li>" for number, entry in enumerate(entries, start=1)
    )
    return (
        f"<nav aria-label='Contents'><ol>{links}</ol><p><a href='#origin'>Settings, versions and machine</a></p></nav>"
    )


def _section(number: int, entry: Entry) -> str:
    """A figure with its words and its numbers, or why there is none."""
    head = (
        f"<section id='figure-{number}' aria-labelledby='title-{number}'>"
        f"<p class='page'>{_safe(entry.page)}</p><h2 id='title-{number}'>{_safe(entry.title)}</h2>"
    )
    if entry.figure is None:
        return f"{head}<p>This figure could not be drawn: {_safe(entry.problem)}.</p></section>"
    alt, how = _safe(entry.alt), f"<details><summary>How to read</summary><p>{_safe(entry.how)}</p></details>"
    return (
        f"{head}<figure><div class='drawing' role='img' aria-label=\"{alt}\" "
        f"data-figure='data-{number}' data-name=\"{_safe(entry.name)}\"></div>"
        f"<noscript><p>{alt} (The figure itself needs JavaScript.)</p></noscript>"
        f"<figcaption>{_safe(entry.caption)}</figcaption></figure>"
        f"{how if entry.how else ''}{_table(entry)}{_data(f'data-{number}', _figure(entry.figure))}</section>"
    )


def _table(entry: Entry) -> str:
    """The numbers behind a figure: those of its card, or else what it draws."""
    table = entry.table if entry.table is not None or entry.figure is None else paper_figure.numbers_of(entry.figure)
    if table is None or not len(table.columns):
        return ""
    shown = table.head(MOST_ROWS)
    rest = f"<p class='soft'>The first {len(shown):,} of {len(table):,} rows.</p>" if len(shown) < len(table) else ""
    return (
        f"<details><summary>Table: {len(table):,} rows</summary>{rest}"
        f"<div class='wide' tabindex='0' role='region' aria-label=\"numbers of {_safe(entry.title)}\">"
        f"{Table(shown).html()}</div></details>"
    )


def _origin(origin: Origin) -> str:
    protocols = "".join(f"<li>{_safe(line)}</li>" for line in origin.protocols)
    return (
        "<section id='origin'><h2>Settings, versions and machine</h2>"
        f"<p>The command that makes the run again:</p><pre>{_safe(origin.command)}</pre>"
        + (f"<p>Measured by:</p><ul>{protocols}</ul>" if protocols else "")
        + _pairs("Settings of the run", origin.settings)
        + _pairs("Texts, versions and machine of the run", origin.provenance)
        + _pairs("What wrote this report", origin.writer)
        + "</section>"
    )


def _pairs(title: str, pairs: Pairs) -> str:
    lines = "".join(f"<tr><th scope='row'>{_safe(name)}</th><td>{_safe(value)}</td></tr>" for name, value in pairs)
    return (
        f"<details><summary>{_safe(title)}</summary><div class='wide' tabindex='0' role='region' "
        f"aria-label=\"{_safe(title)}\"><table class='pairs'>{lines}</table></div></details>"
    )


def _figure(figure: go.Figure) -> str:
    """A figure as Plotly reads it; how it looks and how wide it is are set by the page."""
    made = paper_figure.as_shapes(figure).update_layout(template="none", width=None)
    return str(made.to_json())


def _looks() -> str:
    """Empty figures that look light and dark."""
    made = {name: go.Figure(layout={"template": look}) for name, look in _LOOKS.items()}
    return "{" + ",".join(f'"{name}":{figure.to_json()}' for name, figure in made.items()) + "}"


def _data(name: str, written: str) -> str:
    """JSON for the script, in a part of the page that runs nothing and cannot be left by any text."""
    for sign in "<>&\u2028\u2029":
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    return f"<script type='application/json' id='{name}'>{written}</script>"


def _safe(words: object) -> str:
    return html.escape(str(words), quote=True)


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Report:
    """A report as it was made."""

    content: bytes
    """the file"""
    figures: int
    """how many figures are in it"""
    missing: dict[str, str]
    """why others are not, by name"""


def make(run: Run, cards: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> Report:
    """Makes the report of a run; for `cards`, all where left out, `values` and errors see `gather`."""
    entries = gathering.gather(run, cards or gathering.names(), values)
    missing = {entry.name: entry.problem for entry in entries if entry.figure is None}
    there = [entry for entry in entries if entry.figure is not None or cards]
    return Report(as_html(origin.of(run), there), len(entries) - len(missing), missing)


def require_place(path: Path) -> None:
    """Raises SettingsError where the name of a report's file does not end as an HTML file does."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise SettingsError(f"a report is written as HTML: give a name that ends in .html (got {path.name!r})")


def save(report: Report, path: Path) -> None:
    """Writes a report, whole or not at all; StoreError where the file cannot be written."""
    try:
        write_bytes(path, report.content)
    except OSError as error:
        raise StoreError(
            f"{str(path)!r} cannot be written ({error.strerror or error}): choose another place"
        ) from error
