"""The rank drift of a text of one's own against A and B: at once on a small model, else from its jobs."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from gprune.analysis import own_text as analysis
from gprune.analysis.drift import Distribution, distribution_table
from gprune.analysis.own_text import A_B, A_OWN, B_OWN, FLOOR
from gprune.app import preview
from gprune.app.preview import Held, OwnText, Source
from gprune.app.preview.worker.messages import OWN_PAIRS
from gprune.app.ui import asking, marks, packed, tables, user_files
from gprune.app.ui.card import Card, card
from gprune.app.ui.chart_style import GREY, PAIR, TEXT_A, TEXT_B, label, layer_axis, style
from gprune.app.ui.panel import Panel
from gprune.app.ui.text import plain, said, short
from gprune.data import texts as corpora
from gprune.pipeline import stages
from gprune.pipeline.estimate.dimensions import of_model
from gprune.pipeline.estimate.operations import operations, rate
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages import Graph, plugins
from gprune.pipeline.stages.inputs import Inputs, content_of
from gprune.records import RankDrift
from gprune.study import Study
from gprune.system.errors import CorpusError, ModelError
from gprune.system.units import duration

AT_ONCE_SECONDS = 30.0
"""what takes longer by what is known of this machine is a job"""
BINS = 60
EVERY = 0.5
"""seconds between two looks at a text that is being measured"""
_NAME = "own-text.txt"
_WORDS = {
    "waiting": "Waits for its turn …",
    "loading": "A process is started and reads the model …",
    "measuring": "The model reads the text …",
}
_HEIGHT = 380
_LINES: dict[str, tuple[dict[str, Any], str]] = {
    A_OWN: ({"color": TEXT_A, "width": 3}, "circle"),
    B_OWN: ({"color": TEXT_B, "width": 3}, "square"),
    A_B: ({"color": PAIR, "width": 2, "dash": "dash"}, "x"),
    FLOOR: ({"color": GREY, "width": 2, "dash": "dot"}, "square-open"),
}


@dataclass(frozen=True, slots=True)
class Brought:
    """A text that a person has brought, and that has enough sequences."""

    raw: bytes
    name: str
    suffix: str
    """how its file is read: .txt or .jsonl"""
    usable: int
    """sequences that it gives"""


def show(run: Run, text: Brought) -> None:
    """Draws the cards of the drift, or what there is to wait for."""
    found: Mapping[str, RankDrift] = {}
    with card("cd_own_drift", "How far your text moves ranks", run) as drawn:
        graph = graph_of(run, text)
        held = _stored(run, graph)
        if held.phase != "complete":
            held = _asked(run, graph, text)
        if held.phase == "complete":
            found = held.drifts
            _histogram(drawn, run, text, graph.study, found)
        elif held.phase == "failed":
            st.error(said(held.reason), icon=":material/error:")
        elif held.reason:
            st.info(said(held.reason), icon=":material/hourglass_empty:")
    if found:
        with card("cd_own_layers", "Rank correlation by layer", run) as drawn:
            _layers(drawn, text, found)


def graph_of(run: Run, text: Brought) -> Graph:
    """The stages of a study that has the text as its C, with as many sequences as all three texts give.

    Raises CorpusError where the text is one of the run's own, StoreError where the run does not say what it
    has read.
    """
    run.graph.require_known()
    content = _content(hashlib.sha256(text.raw).hexdigest(), text.suffix, text.raw)
    for role, letter in stages.graph.LETTERS.items():
        if role != "substitute" and run.graph.inputs.calibration.get(role) == content:
            raise CorpusError(f"the text is {letter} itself, from which it has no drift: bring another one")
    study, inputs = study_of(run.study, text.usable), run.graph.inputs
    texts = {**inputs.calibration, **_written(study, inputs), "substitute": content}
    return Graph(study, replace(inputs, calibration=texts))


def _written(study: Study, inputs: Inputs) -> dict[str, str]:
    """What a run of a study would know A and B by where the digest depends on how much is drawn of them."""
    names = {role: str(getattr(study, role)) for role in stages.PAIR}
    return {
        role: content_of(study, inputs.model, inputs.precision, name, role)
        for role, name in names.items()
        if corpora.by_amount(name)
    }


def study_of(study: Study, usable: int) -> Study:
    """The study that has an own text of so many usable sequences as its C and asks for its drift alone."""
    changes = {
        "substitute": _NAME,
        "methods": ["dense"],
        "evaluation.texts": [],
        "evaluation.tasks": [],
        "calibration.samples": min(study.calibration.samples, usable),
    }
    return study.with_settings(changes)


@st.cache_data(max_entries=32, show_spinner=False)
def _content(digest: str, suffix: str, _raw: bytes) -> str:
    """What a run would know the text by, which depends on its bytes and how they are read alone."""
    with user_files.as_file(_raw, suffix, _NAME) as file:
        return corpora.fingerprint(str(file), "calibration")


def _stored(run: Run, graph: Graph) -> Held:
    """What jobs have measured before; where a page measures nothing itself, A and the text are enough."""
    results = stages.Results(run.results.store, graph)
    there = {name: pair for name, pair in OWN_PAIRS.items() if results.has(stages.drift, *pair)}
    enough = analysis.A_OWN in there and not _at_once(seconds(run, graph))
    if len(there) < len(OWN_PAIRS) and not enough:
        return Held("waiting")
    return Held("complete", drifts={name: results.get(stages.drift, *pair) for name, pair in there.items()})


def _at_once(expected: float | None) -> bool:
    return expected is not None and expected <= AT_ONCE_SECONDS


def _asked(run: Run, graph: Graph, text: Brought) -> Held:
    """Asks a worker, where the model is small enough, and looks again until it has answered."""
    if missing := packed.lacking(run):
        return Held("waiting", missing)
    expected = seconds(run, graph)
    if not _at_once(expected):
        long = "" if expected is None else f", about {duration(expected)},"
        return Held("waiting", f"With this model that takes longer{long} than a page should: start its jobs.")
    own = OwnText(Source(run.root, graph), text.raw, text.suffix)
    asked = preview.pool().hold(own, asking.owner("own text"))
    held = preview.pool().held(asked) or Held("waiting")
    if held.phase in ("complete", "failed"):
        return held
    st.fragment(run_every=EVERY)(_follow)(asked)
    return Held("waiting")


def _follow(asked: str) -> None:
    """Says how far a text is, and draws the page anew when it is measured."""
    held = preview.pool().held(asked)
    if held is None or held.phase in ("complete", "failed"):
        st.rerun(scope="app")
    with st.container(key="cd_own_progress"):
        st.caption(said(held.reason) if held.reason else _WORDS[held.phase])


def seconds(run: Run, graph: Graph) -> float | None:
    """What measuring takes by what is known of this machine; None where that cannot be told, or no page may.

    The pass of `run` says how fast this machine is.
    """
    results = stages.Results(run.results.store, graph)
    wanted = stages.order([stages.drift(graph, *pair) for pair in OWN_PAIRS.values()], results.holds)
    # what is extra is not made for it
    own = [stage for stage in wanted if not stages.KINDS[stage.kind].extra]
    missing = [stage for stage in own if not results.there(stage)]
    if run.study.offload or any(plugins.scores(graph, stage) for stage in missing):
        return None
    try:
        model = of_model(run.study.model)
    except ModelError:
        return None
    parts = [operations(stage.id, model, graph.study) for stage in missing]
    if None in parts:
        return None
    gpu = Source(run.root, graph).device != "cpu"
    pace = rate([run.record], gpu, run.graph.inputs.precision)
    return sum(part for part in parts if part is not None) / pace.operations


def called(text: Brought) -> str:
    """What a sentence calls the text: its name without the ending of a file."""
    return short(text.name.removesuffix(text.suffix))


def _histogram(drawn: Card, run: Run, text: Brought, study: Study, found: Mapping[str, RankDrift]) -> None:
    finding, pairs = analysis.headline(found, called(text)), analysis.pair_table(found)
    drawn.title(plain(finding))
    tables.show(
        pairs,
        placeholder="–",
        alt="mean drift and rank correlation of every pair of texts",
        forms=dict.fromkeys(pairs.columns[1:], "%.3f"),
    )
    samples = study.calibration.samples
    anew = " A and B are drawn anew with as few." if samples < run.study.calibration.samples else ""
    made = Panel(
        _drift_of_pairs(analysis.curves(found, BINS)),
        "Halves of the texts, all of one size; the dotted line is half of your text against its other half.",
        alt=finding,
        table=lambda: distribution_table(analysis.curves(found, BINS)),
        how=f"{samples:,} sequences of {study.calibration.length} tokens of each text, scores by "
        f"{label(study.metric)}: what a study with this text as C computes of the drift.{anew} The chart "
        "compares halves, of half the sequences each. The dotted line is how far sampling alone moves ranks "
        "at this size; of a single neuron it does not say whether text or sampling has moved it. The table "
        "has the whole sets too. The text and its tokens are forgotten with the page.",
    )
    drawn.show(made)


def _layers(drawn: Card, text: Brought, found: Mapping[str, RankDrift]) -> None:
    table = analysis.layer_table(found)
    lowest = int(table[analysis.A_OWN].argmin())
    value = float(table[analysis.A_OWN].min())
    named = plain(called(text))
    drawn.title(f"Layer {lowest} ranks {named} and A most differently: correlation {value:.2f} on halves")
    made = Panel(
        _correlations(table),
        "On halves; 1 is the same order in a layer. Dotted: half of your text against its other half.",
        table=lambda: table,
    )
    drawn.show(made)


def _drift_of_pairs(curves: list[Distribution]) -> go.Figure:
    """The drift of every pair on halves, and of the own text's two."""
    figure = go.Figure()
    for curve in curves:
        marks.drift_steps(figure, curve, curve.name, _LINES[curve.name][0])
    style(figure, "rank drift d between halves", "share of neurons (%)", _HEIGHT)
    return figure.update_xaxes(range=[0, marks.drift_end(curves)])


def _correlations(table: pd.DataFrame) -> go.Figure:
    """The rank correlation of every layer, on halves."""
    figure = go.Figure()
    for name in table.columns[1:]:
        line, symbol = _LINES[name]
        marks.curve(figure, table["layer"], table[name], name, line, "layer %{x}: %{y:.3f}", symbol=symbol)
    style(figure, "layer", "Spearman correlation of ranks, halves", _HEIGHT)
    layer_axis(figure, len(table))
    return figure
