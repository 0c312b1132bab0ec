"""The chart of perplexity against retention, whose line sets how much is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import whatif
from gprune.analysis.comparison import DENSE
from gprune.analysis.formatting import percent
from gprune.analysis.paired_test import Measurement
from gprune.app import preview
from gprune.app.pages.rasa import retention_line
from gprune.app.pages.rasa.controls import KEEP, LEAST, MOST
from gprune.app.pages.rasa.retention_line import Point, Series
from gprune.app.preview import Answer, Question
from gprune.app.ui import derived_cache, tables, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain, said
from gprune.pipeline.runs.opened import Run
from gprune.study.methods import METHODS
from gprune.system.errors import GpruneError

RETENTIONS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
Known = tuple[str, float, Answer]
"""method, retention, and what is known of it"""
_CAPTION = (
    "Hollow points still lack windows; bars are the 95 % interval of the ratio to "
    "dense, paired over windows; a point with one window has none."
)
_HOW = (
    "Drag the line, or give it the focus (Tab) and press the arrow keys, Page Up, Page Down, Home or End; a "
    "click on a point takes its retention. While the line moves, each perplexity is read off the curve: "
    "interpolated on the log axis between two points, not measured. When it is let go, every method decides "
    "its masks anew at that retention. Points without a line are what this run has measured."
)
_SHIFTED = (
    "GPrune's thresholds are not learned anew at another retention: the run's own are shifted together until "
    "they meet it. The other methods decide anew from scores that are there."
)


@dataclass(frozen=True, slots=True)
class CurveRequests:
    """Points of a curve that the worker can measure."""

    points: tuple[tuple[str, float], ...]
    """method and retention of each question"""
    questions: tuple[Question, ...]
    refused: dict[str, str]
    """the reason why a method lacks points, by method"""


def curve_requests(run: Run, choice: whatif.LabChoice, methods: Sequence[str], text: str) -> CurveRequests:
    """Return the questions that draw the curves of methods, at RETENTIONS and that of the choice."""
    points, questions, refused = list[tuple[str, float]](), list[Question](), dict[str, str]()
    for method in methods:
        for level in sorted({choice.retention, *RETENTIONS}):
            at_level = replace(at_the_line(choice, method), retention=level)
            try:
                questions.append(Question(text, method, derived_cache.masks_of(run, at_level), fitted=False))
                points.append((method, level))
            except GpruneError as error:
                refused[method] = str(error)
    return CurveRequests(tuple(points), tuple(questions), refused)


def answered(curve: Mapping[tuple[str, float], str], measured: Sequence[Known]) -> list[Known]:
    """Return the points that have a window each: live answers, and measured ones of the other methods.

    `curve` has the identities of live answers by method and retention.
    """
    points = [
        (method, level, answer)
        for (method, level), identity in curve.items()
        if (answer := preview.pool().latest(identity)) is not None and answer.done
    ]
    live = {method for method, _, _ in points}
    return points + [point for point in measured if point[0] not in live]


def draw_line(points: Sequence[Known], retention: float, key: str, *, fills: bool = False) -> None:
    """Draw the curve with its line; it `fills` a slide, or has a height of its own."""
    retention_line.draw(
        series(points),
        reference(points) if points else None,
        retention,
        (LEAST, MOST),
        f"perplexity of {len({name for name, _, _ in points})} methods against retention",
        key=key,
        fills=fills,
        on_retention=partial(url_state.put, KEEP),
    )


def measured(cells: Sequence[Measurement], text: str) -> list[Known]:
    """Return a run's measurements on a text as complete answers; empty without the dense model."""
    here = {cell.method: cell for cell in cells if cell.text == text and len(cell.losses)}
    dense = here.pop(DENSE, None)
    return [
        (name, cell.retention, Answer("", name, text, "complete", cell.losses, dense.losses))
        for name, cell in here.items()
        if dense is not None and np.isfinite(cell.retention) and len(cell.losses) == len(dense.losses)
    ]


def series(points: Sequence[Known]) -> list[Series]:
    """Perplexity of every method at every retention that is known."""
    dense = reference(points)
    return [
        Series(method, tuple(_point(level, answer, dense) for level, answer in own))
        for method in dict.fromkeys(name for name, _, _ in points)
        if (own := sorted(((at, answer) for name, at, answer in points if name == method), key=itemgetter(0)))
    ]


def reference(points: Sequence[Known]) -> float:
    """The dense model's perplexity over the most windows that are known; NaN without a point."""
    most = max((answer for _, _, answer in points), key=lambda answer: answer.done, default=None)
    return most.base_perplexity if most is not None else float("nan")


def table(points: Sequence[Known]) -> pd.DataFrame:
    """The numbers of the curve, with the difference from the dense model."""
    dense = reference(points)
    rows = [
        {
            "method": label(method),
            "kept": level,
            "perplexity": _level(answer, dense),
            "log-perplexity over dense": answer.difference.nats if answer.difference else np.nan,
            "± (95 % interval)": answer.difference.nats_margin if answer.difference else np.nan,
            "windows": answer.done,
        }
        for method, level, answer in points
    ]
    return pd.DataFrame(rows)


def _point(level: float, answer: Answer, dense: float) -> Point:
    value, error = _level(answer, dense), _error(answer)
    return Point(
        level,
        value,
        value * float(np.exp(-error)),
        value * float(np.exp(error)),
        answer.progress == "complete",
        f"{answer.done} of {answer.windows} windows",
    )


def _level(answer: Answer, dense: float) -> float:
    found = answer.difference
    return dense * float(np.exp(found.nats)) if found else dense


def _error(answer: Answer) -> float:
    """Half the 95 % interval of the paired log ratio; none while it is not known."""
    found = answer.difference
    return found.nats_margin if found and np.isfinite(found.nats_margin) else 0.0


def at_the_line(choice: whatif.LabChoice, method: str) -> whatif.LabChoice:
    """Return the choice of a method at the line; baselines are scored on A."""
    learned = METHODS[method].decision == "learned"
    return replace(choice, method=method, scoring=choice.scoring if learned else whatif.PRIMARY)


def show(
    run: Run,
    drawn: Card,
    choice: whatif.LabChoice,
    methods: Sequence[str],
    text: str,
    points: Sequence[Known],
    refused: Mapping[str, str],
) -> None:
    """Draws chart, what each method keeps at the line, and the numbers.

    `points` have at least one window each; `refused` says by method why it has not all of them.
    """
    st.markdown(f"**Perplexity on {plain(text)} against retention**")
    draw_line(points, choice.retention, "rasa_curve")
    drawn.tools(lambda: table(points), caption=_CAPTION, how=_HOW)
    refused = dict(refused) | _kept(run, choice, methods)
    for method, reason in refused.items():
        st.caption(f"Points of {plain(label(method))} are missing: {said(reason)}.")


def _kept(run: Run, choice: whatif.LabChoice, methods: Sequence[str]) -> dict[str, str]:
    """Shows what the chosen methods keep at the line, decided anew; says why where one cannot."""
    rows, refused = list[dict[str, object]](), dict[str, str]()
    for method in methods:
        try:
            masks = derived_cache.masks_of(run, at_the_line(choice, method))
        except GpruneError as error:
            refused[method] = str(error)
            continue
        rows.append(
            {
                "method": label(method),
                "weights kept": masks.retention,
                "neurons kept": masks.ffn.mean(),
                "key/value groups kept": masks.heads.mean(),
            }
        )
    if rows:
        tables.show(
            pd.DataFrame(rows),
            alt=f"what each method keeps at {percent(choice.retention)}",
            shares=dict.fromkeys(list(rows[0])[1:], 2),
        )
    if "gprune" in methods and abs(choice.retention - run.study.retention) > 1e-9:
        st.caption(_SHIFTED)
    return refused
