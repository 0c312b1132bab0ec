"""The Inspector's measures and figures: everything is read from slices of one layer."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from gprune import records
from gprune.analysis import calibration as analysis
from gprune.analysis import inspection
from gprune.analysis.calibration_report.measuring import texts_of
from gprune.analysis.formatting import counted
from gprune.analysis.inspection import LayerRanks
from gprune.app.pages.inspector import charts
from gprune.app.ui.chart_style import called
from gprune.app.ui.memo import memoized
from gprune.app.ui.panel import Panel, in_range, panel
from gprune.app.ui.text import in_figure, short
from gprune.app.ui.unit import KEYS, NOTHING, Selection, there
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record
from gprune.pruning import scoring
from gprune.pruning.scoring import layer_scorer
from gprune.records import Array
from gprune.study.settings import require
from gprune.system.errors import StoreError

PIN = "ins_pin"


def pinned(run: Run, written: str) -> Selection:
    """What the run has of a pinned layer, module and neuron, as the address has them, `x` for none."""
    parts = written.split("-")
    if len(parts) != 3 or not all(part == "x" or (part.isdecimal() and len(part) < 9) for part in parts):
        return NOTHING
    wanted = Selection(*(None if part == "x" else int(part) for part in parts))
    found, lacking = there(run, wanted) if wanted else (NOTHING, "")
    return NOTHING if lacking else found


def most_drifting(run: Run) -> Selection:
    """The neuron whose rank moves most between A and B, of equal ones the first; nothing without drift."""
    with contextlib.suppress(StoreError):
        if run.has(stages.drift):
            moved = run.load(stages.drift).magnitude
            layer, neuron = np.unravel_index(int(np.argmax(moved)), moved.shape)
            return there(run, Selection(int(layer), None, int(neuron)))[0]
    return NOTHING


def _units(run: Run, values: Mapping[str, Any]) -> list[Selection]:
    """What the page shows: what is pinned and what is selected, or else the most drifting neuron."""
    chosen = there(run, Selection(*(values.get(key) for key in KEYS)))[0]
    found = [one for one in dict.fromkeys((pinned(run, values.get(PIN) or ""), chosen)) if one]
    return found or [one for one in (most_drifting(run),) if one]


def _neurons(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    units = _units(run, values)
    return [{"layer": one.layer, "neuron": one.neuron} for one in units if one.neuron is not None]


def _groups(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    units = _units(run, values)
    return [{"layer": one.layer, "module": one.module} for one in units if one.neuron is None]


@panel("neuron_ranks", "ins_unit", "One neuron on every text", reads=_neurons)
def neuron_ranks(run: Run, *, layer: int | None = None, neuron: int = 0) -> Panel:
    """The rank of a neuron on every text, with what re-sampling does to it."""
    layers, neurons = run.load(stages.scores, "primary").ffn.shape
    layer, neuron = in_range("layer", layer, layers), in_range("neuron", neuron, neurons)
    found = standings(run, layer)
    return Panel(
        charts.rank_on_texts(found, neuron, drawn_names(run)),
        not_parts(run) or "Whiskers: the range of its rank over halves of that text alone.",
        title=f"Neuron {neuron} of layer {layer}: {_finding(found, neuron)}",
        alt=_finding(found, neuron),
        table=lambda: _table(found, neuron),
        how="Ranks run from 0 to 1 within the layer. A half is half of the shards, which are neighbours; "
        "every starting point is taken. A half is noisier than the text, so the whiskers are wide.",
    )


def _finding(standings: dict[str, LayerRanks], neuron: int) -> str:
    ranks = ", ".join(f"{found.rank[neuron]:.2f} on {letter}" for letter, found in standings.items())
    return f"rank {ranks}"


def _table(standings: dict[str, LayerRanks], neuron: int) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "text": letter,
                "score": found.score[neuron],
                "rank": found.rank[neuron],
                "lowest on a half": found.low[neuron],
                "highest on a half": found.high[neuron],
            }
            for letter, found in standings.items()
        ]
    )


@panel("score_histograms", "ins_unit", "Scores of a layer or a module on every text", reads=_groups)
def score_histograms(
    run: Run, *, layer: int | None = None, module: int | None = None, neuron: int | None = None
) -> Panel:
    """How the scores of a layer's neurons, or of a module's, are distributed on each text."""
    layers, neurons = run.load(stages.scores, "primary").ffn.shape
    layer = in_range("layer", layer, layers)
    if module is not None:
        count = int(run.load(stages.partition).counts[layer])
        require(0 <= module < count, "module", module, f"0 to {count - 1}")
    unit = Selection(layer, module)
    members, rows = members_of(run, unit)
    found = standings(run, layer)
    marked = {}
    if neuron is not None:
        neuron = in_range("neuron", neuron, neurons)
        marked = {letter: float(one.score[neuron]) for letter, one in found.items()}
    scores = {letter: np.asarray(one.score)[members] for letter, one in found.items()}
    return Panel(
        charts.score_histograms(scores, marked),
        "Share of its neurons by score; the same bins on every text.",
        title=_title(unit, int(members.sum()), rows),
        alt=f"scores of {unit.words}",
        table=lambda: members_table(run, unit, members),
    )


def _title(unit: Selection, members: int, rows: pd.DataFrame | None) -> str:
    if unit.module is None:
        count = "" if rows is None else f", {counted(len(rows), 'module')}"
        return f"Layer {unit.layer}: {counted(members, 'neuron')}{count}"
    did = ""
    if rows is not None and "RASA" in rows:
        did = f", by RASA {rows['RASA'].iloc[0]}"
    return f"Module {unit.module} of layer {unit.layer}: {counted(members, 'neuron')}{did}"


def members_of(run: Run, unit: Selection) -> tuple[Array, pd.DataFrame | None]:
    """(neurons,) bool of a module or a layer, and the rows of its modules where there are modules."""
    layer = unit.layer or 0
    table = modules_of(run, layer)
    if unit.module is None:
        neurons = run.load(stages.scores, "primary").ffn.shape[1]
        return np.ones(neurons, dtype=bool), table
    members = np.asarray(run.load(stages.partition).labels[layer]) == unit.module
    return members, table[table["module"] == unit.module] if table is not None else None


def kept_by(run: Run, layer: int) -> dict[str, Array]:
    """(neurons,) bool of a layer, by what the first two methods are called: GPrune and the plain form."""
    wanted = [name for name in ("gprune", run.study.metric) if name in run.masked]
    return {called(name): np.asarray(run.load(stages.masks, name).ffn[layer]) for name in wanted}


def modules_of(run: Run, layer: int) -> pd.DataFrame | None:
    """The modules of a layer; None where there are none."""
    if not run.has(stages.partition):
        return None
    statistics, adapted = run.find(stages.modules), run.find(stages.adapted)
    kept = {f"{name} keeps": mask for name, mask in kept_by(run, layer).items()}
    return inspection.module_table(run.load(stages.partition), layer, statistics, adapted, kept)


def members_table(run: Run, unit: Selection, members: Array) -> pd.DataFrame:
    """One row a neuron, the most important on A first."""
    layer, found = unit.layer or 0, np.flatnonzero(members)
    table = pd.DataFrame({"layer": layer, "neuron": found})
    for letter, one in standings(run, layer).items():
        table[f"rank on {letter}"] = np.asarray(one.rank)[found]
    if run.has(stages.drift):
        table["drift"] = np.asarray(run.load(stages.drift).magnitude[layer])[found]
    for name, mask in kept_by(run, layer).items():
        table[name] = mask[found]
    return table.sort_values("rank on A", ascending=False, kind="stable").reset_index(drop=True)


def standings(run: Run, layer: int) -> dict[str, LayerRanks]:
    """How a layer's neurons rank on every text that is scored, by letter; MissingResultError if none is."""
    found = {}
    for role in texts_of(run.study):
        if run.has(stages.scores, role):
            whole = not_parts(run) == "" and run.has(stages.statistics, role) and run.has(stages.norms)
            keys = (run.key(stages.statistics, role), run.key(stages.norms)) if whole else ("", "")
            own = run.key(stages.scores, role)
            found[analysis.ROLES[role]] = _standing(run.root, own, *keys, run.study.metric, layer)
    return run.require(found, stages.scores, "primary")


def not_parts(run: Run) -> str:
    """Why halves of a text cannot be scored for a run; empty where they can."""
    if run.study.metric not in scoring.METRICS:
        return "Its metric cannot score parts of a text: no whiskers."
    if run.study.metric == "flap" and run.study.calibration.flap_variant == "released":
        # a half scored by the variance is no part of a rank by the recursion
        return "FLAP's released recursion cannot score parts of a text: no whiskers."
    return ""


# a layer at 7B takes 1.4 MB a text, and is drawn for every neuron of it
@memoized(24)
def _standing(root: str, scores: str, statistics: str, norms: str, metric: str, layer: int) -> LayerRanks:
    score = record(root, "scores", scores, "UnitScores").ffn[layer]
    if not statistics:
        return inspection.standing(score, None, 0)
    measured: records.ActivationStatistics = record(root, "statistics", statistics, "ActivationStatistics")
    weights = record(root, "norms", norms, "WeightNorms")
    return inspection.standing(score, layer_scorer(metric, measured, weights, layer), measured.shards)


def profiles(run: Run, layer: int) -> Array:
    """(texts, neurons) ranks of a layer."""
    return np.stack([one.rank for one in standings(run, layer).values()])


def drawn_names(run: Run) -> dict[str, str]:
    """Short names of the texts by letter, safe to draw."""
    return {analysis.ROLES[role]: in_figure(short(text)) for role, text in texts_of(run.study).items()}
