"""The card of widths: what every layer keeps, what padding would cost, and other alignments beside it."""

import math
import re
from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import speed as analysis
from gprune.analysis.formatting import percent
from gprune.app.pages.speed_export import panels
from gprune.app.pages.speed_export.panels import ALIGNMENTS
from gprune.app.ui import frame, selection, tables, url_state, work
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import label
from gprune.app.ui.commands import command
from gprune.app.ui.run_choice import labels
from gprune.app.ui.text import plain, short
from gprune.models import identity
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.pipeline.stages import Graph
from gprune.records import ModelShape, PrunedModel, PruningMasks
from gprune.study import Study
from gprune.study.methods import of_masks
from gprune.system.errors import GpruneError
from gprune.system.units import amount

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def draw(drawn: Card, run: Run) -> None:
    """Draws the card; MissingResultError where no mask is there yet."""
    masks, shape = run.masks(), run.shape
    if not masks or shape is None:
        raise MissingResultError("the masks of any method")
    named = {name: label(name) for name in masks}
    method = url_state.selectbox("Method", named, "sx_widths_method", next(iter(named)), width=320)
    left, right = st.columns([3, 2])
    with left:
        drawn.show(panels.widths(run, method=method, selected=selection.current(run)))
    with right:
        drawn.beside(panels.group_widths(run, method=method), "sx_groups_chart")
    st.markdown(_padding(run, method, masks[method], shape))
    _alignment(run, shape)
    _beside(run)


def _padding(run: Run, method: str, masks: PruningMasks, shape: ModelShape) -> str:
    """One sentence on what an ordinary folder of this model would hold."""
    if analysis.widths(masks).equal:
        return "**Every layer has the same width**, so that nothing has to be padded."
    if run.size is None:
        return "What padding costs is known once the model has been read."
    try:
        family = str(identity.configuration(identity.locate(run.study.model)).get("model_type", ""))
    except GpruneError:
        return "The dense model is not here any more, so that its family and the cost of padding are not known."
    pruned = PrunedModel(masks, stages.carried_out(run.results, of_masks(method).name))
    made = analysis.padding(shape, run.size, pruned, family)
    if isinstance(made, str):
        return f"**Not known here what padding costs**: an ordinary {plain(family)} model {made}."
    precision = run.graph.inputs.precision
    sizes = [_sized(count, precision) for count in (made.dense, made.pruned, made.padded)]
    return (
        f"**Padded to an ordinary folder**, every layer gets {made.neurons:,} neurons and {made.groups} "
        f"key/value group{'s' if made.groups > 1 else ''}: dense {sizes[0]}, pruned {sizes[1]}, padded "
        f"{sizes[2]}. **{percent(made.kept_saving)}** of what pruning saved is left; the outputs stay the "
        "same."
    )


def _sized(count: int, precision: str) -> str:
    return f"{count:,} parameters ({amount(count * _BYTES.get(precision, 4))})"


def aligned_study(study: Study, alignment: int) -> Study:
    """The same study with FFN widths in multiples of a number, and a name that says so."""
    name = re.sub(r", alignment \d+$", "", study.name)
    named = f"{name}, alignment {alignment}" if name and alignment > 1 else name
    return study.with_settings({"sparsity.alignment": alignment, "name": named})


def _alignment(run: Run, shape: ModelShape) -> None:
    present = run.study.sparsity.alignment
    fitting = sorted({present, *(number for number in ALIGNMENTS if number <= shape.neurons)})
    options = {str(number): "1 (any)" if number == 1 else str(number) for number in fitting}
    st.markdown("**Alignment**")
    st.caption(
        "Hardware runs matrices fastest whose widths are multiples of 8 to 256. Alignment rounds every FFN "
        "width to such a multiple at the same retention; it changes the masks of every method a little."
    )
    wanted = int(url_state.segmented("Widths are multiples of", options, "sx_alignment", str(present)))
    if wanted == present:
        return
    study = aligned_study(run.study, wanted)
    st.code(command(study), language="bash", wrap_lines=True)
    work.start_button(f"Prune with alignment {wanted}", "sx_align", run.root, study)


def _unaligned(run: Run) -> set[str]:
    """Keys of the masks of the run's main method without alignment, and of all that is measured on texts.

    What else decides them is in these keys, so that they are equal for runs that differ in alignment alone.
    """
    graph, study = run.graph, run.study
    if study.sparsity.alignment > 1:
        graph = Graph(study.with_settings({"sparsity.alignment": 1}), graph.inputs)
    main, masks = next(iter(run.cutting.items()), ("", ""))
    if not main or not graph.known:
        return set()
    measured = {stages.perplexity(graph, main, text).key for text in study.evaluation.texts}
    return {stages.masks(graph, masks).key} | measured


def _beside(run: Run) -> None:
    """Perplexity beside speed, over the runs that differ from this one in alignment alone."""
    wanted = _unaligned(run)
    # what was measured later of a run is no other alignment
    others = [other for other in frame.situation().runs if not other.shown_by or other.name == run.name]
    runs = [other for other in others if wanted and _unaligned(other) == wanted]
    alignments = {other.study.sparsity.alignment for other in runs}
    if len(alignments) < 2:
        st.caption("No run in this cache differs from this one in alignment alone.")
        return
    known = labels(runs)
    runs.sort(key=lambda other: (other.study.sparsity.alignment, other.name))
    table = pd.DataFrame([_line(other, known[other.name], other.name == run.name) for other in runs])
    tables.show(table, alt="perplexity and speed of GPrune at every alignment")
    st.caption(
        "GPrune in the runs that differ from this one in alignment alone (→ marks the one shown): "
        "perplexity, lower is better, and decoding speed relative to the first model of the same run, "
        "higher is better. Ratios of different runs were not measured in turns."
    )


def _line(run: Run, name: str, shown: bool) -> dict[str, Any]:
    line: dict[str, Any] = {"": "→" if shown else "", "alignment": run.study.sparsity.alignment, "run": name}
    if "gprune" in run.masked:
        kept = analysis.widths(run.load(stages.masks)).neurons
        line["FFN widths"] = f"{kept.min():,}–{kept.max():,}"
    for text in run.study.evaluation.texts if "gprune" in run.study.methods else ():
        there, name = run.has(stages.perplexity, "gprune", text), short(text)
        value = run.load(stages.perplexity, "gprune", text).perplexity if there else float("nan")
        number = f"{value:,.4g}" if math.isfinite(value) else "–"
        line[f"{name} ↓" if f"{name} ↓" not in line else f"{text} ↓"] = number
    timed = run.measured.speed != "none" and run.has(stages.speed)
    rows = list(run.load(stages.speed).rows) if timed else []
    ratio, spread = analysis.ratio_of(rows, "gprune")
    return line | {"decode ratio": "not measured" if ratio != ratio else analysis.ratio_words(ratio, spread)}
