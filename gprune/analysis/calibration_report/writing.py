"""Write a card as a self-contained page or as JSON.

Names of texts, runs and models are escaped.
"""

import html
import json
import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from gprune.analysis.calibration_report import figures
from gprune.analysis.calibration_report.card import DEFAULT_SHARE, TextCard, TextComparison
from gprune.analysis.calibration_report.verdict import verdicts
from gprune.analysis.formatting import percent
from gprune.analysis.table import Table
from gprune.system.errors import SettingsError, StoreError
from gprune.system.files import write_bytes
from gprune.system.installation import __version__


def comparison_table(card: TextCard, share: float = DEFAULT_SHARE) -> pd.DataFrame:
    """Return the comparisons with the other texts as a table of formatted values: one row per measure.

    `share` is the limit of the rank drift by sampling, from which the number of sequences in the last row follows.
    """
    run = card.others[0].run if card.others else 0
    rows: list[tuple[str, Callable[[TextComparison], str]]] = [
        ("Median rank drift", lambda other: _format_decimal(other.drift)),
        ("– of two samples", lambda other: _format_decimal(other.drift_sampling)),
        ("Neurons decided differently", lambda other: _format_percent(other.changed)),
        ("– by two samples", lambda other: _format_percent(other.changed_sampling)),
        ("Key/value groups differing", lambda other: _format_percent(other.groups_changed)),
        ("Jaccard index of kept neurons", lambda other: _format_decimal(other.jaccard)),
        ("– by chance", lambda other: _format_decimal(other.jaccard_chance)),
        ("– of two samples, expected", lambda other: _format_decimal(other.jaccard_sampling)),
        ("– of two halves", lambda other: _format_decimal(other.jaccard_halves)),
        ("– of halves of both texts", lambda other: _format_decimal(other.jaccard_across)),
        ("Token distance", lambda other: _format_decimal(other.token_distance)),
        ("Distinct tokens shared", lambda other: _format_percent(other.distinct_shared)),
        (f"Runs of {run} tokens shared", lambda other: _format_percent(other.runs_shared)),
        (f"Sequences for {percent(share)} sampling", lambda other: _format_count(card.recommended(share, other))),
    ]
    table = {"measure": [label for label, _ in rows]}
    for other in card.others:
        column = other.label if other.label not in table else f"{other.label} ({other.letter})"
        table[column] = [format_value(other) for _, format_value in rows]
    return pd.DataFrame(table)


def _format_decimal(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "–"


def _format_percent(value: float) -> str:
    return percent(value, 1) if math.isfinite(value) else "–"


def _format_count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def size(card: TextCard) -> list[tuple[str, str]]:
    """Return the size of the text as labels and formatted values; a dash if unknown."""
    text_size = card.size
    vocabulary = f" of {text_size.entries:,}" if text_size.entries else ""
    sequences = f"{text_size.sequences:,}" + ("" if text_size.available is None else f" of {text_size.available:,}")
    template = [("Template tokens", percent(text_size.template, 1))] if math.isfinite(text_size.template) else []
    return [
        ("Sequences", sequences),
        ("Tokens", f"{text_size.tokens:,}"),
        ("Characters", _format_count(text_size.characters)),
        ("Distinct tokens", "–" if text_size.distinct is None else f"{text_size.distinct:,}{vocabulary}"),
        ("Ten most frequent", percent(text_size.frequent, 1) if math.isfinite(text_size.frequent) else "–"),
        *template,
    ]


def resampling_table(card: TextCard) -> pd.DataFrame:
    """Return a table of the differences between two samples, with one row per measure and size.

    The columns mean, lowest and highest are over all draws of a size.
    """
    rows = [
        (measure, int(count), draws.mean(), draws.min(), draws.max())
        for measure, samples in (("drift", card.resampled.drift), ("changed", card.resampled.changed))
        for count, draws in zip(card.resampled.sequences, samples, strict=True)
    ]
    return pd.DataFrame(rows, columns=["measure", "sequences", "mean", "lowest", "highest"])


SUFFIXES = (".html", ".json")
HOW = (
    "Disjoint samples of the text are compared at increasing sizes, from one pass of the model over the text. The "
    "dotted line is the fit d² = a / (n + b). The scores of one text alone decide each neuron, with the same ratio "
    "in every layer. Expected values for two samples of one text are for samples of this size."
)
_FONT_COLOR = "#767676"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 1.6rem 0 0.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #8886; text-align: right; }
th { font-weight: 600; } th:first-child, td:first-child { text-align: left; }
p.small, footer { color: #767676; font-size: 0.85rem; } .wide { overflow-x: auto; }
"""


def save(card: TextCard, path: Path, share: float = DEFAULT_SHARE) -> None:
    """Write a card in the format of the file's ending, .html or .json.

    Raises SettingsError for another ending, StoreError if the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise SettingsError(f"the file name must end in one of {', '.join(SUFFIXES)} (got {path.name!r})")
    content = {".html": page, ".json": as_json}[suffix](card, share)
    try:
        # a file name may contain a lone surrogate, which UTF-8 cannot encode
        write_bytes(path, content.encode("utf-8", "replace"))
    except OSError as error:
        raise StoreError(
            f"{str(path)!r} cannot be written ({error.strerror or error}): choose another place"
        ) from error


def as_json(card: TextCard, share: float = DEFAULT_SHARE) -> str:
    """Return all numbers and answers of a card as JSON."""
    answers = [{"question": verdict.question, "answer": verdict.answer} for verdict in verdicts(card, share)]
    values = card.to_dict(share) | {"verdicts": answers, "version": __version__}
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def page(card: TextCard, share: float = DEFAULT_SHARE) -> str:
    """Return the card as a self-contained HTML page with charts."""
    title = html.escape(f"Calibration card of {card.name}")
    sections = [
        f"<h1>{title}</h1>",
        f"<p class='small'>{html.escape(_describe_origin(card))}</p>",
        *(
            f"<h2>{html.escape(verdict.question)}</h2><p>{html.escape(verdict.answer)}</p>"
            for verdict in verdicts(card, share)
        ),
        f"<h2>Text read</h2>{Table(pd.DataFrame([dict(size(card))])).html()}",
        f"<pre>{html.escape(card.size.rendered)}</pre>" if card.size.rendered else "",
        "<h2>Effect of sampling on ranks</h2>",
        _figure_html(figures.plot_sampling_drift(card, share)),
    ]
    if card.others:
        comparison = comparison_table(card, share)
        sections += [
            "<h2>The other texts of the run</h2>",
            _figure_html(figures.plot_overlap(card)),
            f"<div class='wide'>{Table(comparison).html()}</div>",
        ]
    sections.append(f"<footer><p>{html.escape(HOW)}</p><p>GPrune Studio {__version__}</p></footer>")
    numbers = as_json(card, share).replace("<", "\\u003c")
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head>\n<body>\n"
        + "\n".join(sections)
        + f"\n<script type='application/json' id='numbers'>{numbers}</script>\n</body></html>\n"
    )


def _describe_origin(card: TextCard) -> str:
    origin = card.origin
    described = f"{card.described}. " if card.described else ""
    return (
        f"{described}Text {card.letter} of the run {origin.run}: {origin.model}, scores by {origin.metric}, "
        f"{percent(origin.retention)} of the weights kept."
    )


def _figure_html(figure: go.Figure) -> str:
    """Return the HTML of a figure that is readable on light and dark backgrounds."""
    figure.update_layout(font={"color": _FONT_COLOR, "family": "system-ui, sans-serif"}, template="none")
    figure.update_xaxes(gridcolor="#8884", linecolor="#8888")
    figure.update_yaxes(gridcolor="#8884", linecolor="#8888")
    options = {"displaylogo": False, "responsive": True}
    return figure.to_html(full_html=False, include_plotlyjs=False, config=options)
