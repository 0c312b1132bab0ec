"""The figures of the page by name, each from a run and what can be set beside its card."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from gprune.analysis import speed as analysis
from gprune.app.pages.speed_export import charts
from gprune.app.ui import marks
from gprune.app.ui.chart_style import label
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.text import plain
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.records import ModelShape, PruningMasks
from gprune.study.settings import require_choice

ALIGNMENTS = (1, 8, 16, 32, 64, 128, 256)


@panel("speed", "sx_speed", "Tokens a second, side by side", reads={"phase": "sx_phase"})
def speed(run: Run, *, phase: str = next(iter(analysis.PHASES))) -> Panel:
    """Tokens a second of every model, side by side."""
    require_choice("phase", phase, tuple(analysis.PHASES))
    rows: list[Mapping[str, Any]] = list(run.load(stages.speed).rows)
    table = analysis.speed_table(rows, phase)
    return Panel(
        charts.dots(table, phase),
        f"Medians over the repetitions, whiskers their quartiles; ratios are to {_reference(rows)}.",
        title=headline(rows),
        alt=headline(rows, phase),
        table=lambda: table,
        how="Dots are medians over the repetitions, whiskers their quartiles; the dotted line is the dense "
        f"model, ratios are to {_reference(rows)}. Each other model takes turns with it in every repetition, "
        "and a ratio is formed within each: a machine that slows down slows both alike. Where its speed "
        "changed meanwhile, as wide whiskers tell, read the ratios and not the distances from the line.",
    )


def headline(rows: list[Mapping[str, Any]], phase: str = "decode") -> str:
    """The finding: GPrune's speed beside the reference, and whether the spread leaves it open."""
    reference = _reference(rows)
    ratio, spread = analysis.ratio_of(rows, "gprune", phase)
    if ratio != ratio:
        return f"Tokens a second beside {reference}"
    verb = {"decode": "decodes", "prefill": "reads the prompt"}.get(phase, "answers")
    number = f"{ratio:.2f} ± {spread:.2f} times its speed"
    if abs(ratio - 1) <= spread:
        return f"GPrune {verb} about as fast as {reference}: {number}"
    return f"GPrune {verb} {'faster' if ratio > 1 else 'slower'} than {reference}: {number}"


def _reference(rows: list[Mapping[str, Any]]) -> str:
    """The model that the ratios are to, in words."""
    first = str(rows[0]["model"])
    return "the dense model" if first == analysis.DENSE else plain(label(first))


@panel("widths", "sx_widths", "Width of every layer", reads={"method": "sx_widths_method"})
def widths(run: Run, *, method: str = "", selected: Selection = NOTHING) -> Panel:
    """FFN neurons that each layer keeps under a method."""
    name, masks, shape = masks_of(run, method)
    kept = analysis.widths(masks)
    figure = charts.widths(kept.neurons, shape.neurons, name, "FFN neurons")
    marks.layer_line(figure, selected)
    table = {"layer": range(len(kept.neurons)), "FFN neurons": kept.neurons, "key/value groups": kept.groups}
    return Panel(
        figure,
        f"FFN neurons that each layer keeps; grey is the dense width of {shape.neurons:,}. The largest "
        f"common divisor of the pruned widths is {analysis.pruned_multiple(kept, shape):,}.",
        title=_finding(name, kept, shape),
        table=lambda: pd.DataFrame(table),
    )


@panel("group_widths", "sx_widths", "Width of every layer", reads={"method": "sx_widths_method"})
def group_widths(run: Run, *, method: str = "") -> Panel:
    """Key/value groups that each layer keeps under a method."""
    name, masks, shape = masks_of(run, method)
    kept = analysis.widths(masks)
    return Panel(
        charts.widths(kept.groups, shape.kv_heads, name, "key/value groups"),
        f"Key/value groups that each layer keeps, of {shape.kv_heads}; one takes {shape.group_size} "
        f"query head{'s' if shape.group_size > 1 else ''} with it.",
        title=_finding(name, kept, shape),
        alt="key/value groups that each layer keeps",
    )


def _finding(method: str, kept: analysis.Widths, shape: ModelShape) -> str:
    divisor = analysis.pruned_multiple(kept, shape)
    aligned = max(number for number in ALIGNMENTS if divisor % number == 0)
    low, high = int(kept.neurons.min()), int(kept.neurons.max())
    span = f"{low:,} to {high:,}" if low < high else f"{low:,}"
    words = f"all multiples of {aligned}" if aligned > 1 else "not aligned to 8 or more"
    return f"{plain(label(method))} keeps {span} of {shape.neurons:,} neurons a layer, {words}"


def masks_of(run: Run, method: str) -> tuple[str, PruningMasks, ModelShape]:
    """The masks that are meant, where no method is named.

    Raises:
        SettingsError: the run has no such masks.
        MissingResultError: it has none at all.
    """
    masks, shape = run.masks(), run.shape
    if not masks or shape is None:
        raise MissingResultError("the masks of any method")
    name = method or next(iter(masks))
    require_choice("method", name, tuple(masks))
    return name, masks[name], shape
