"""The figures of the page by name, each from a run and what can be set beside its card."""

import plotly.graph_objects as go

from gprune.analysis.decisions import chance_jaccard
from gprune.analysis.verdict import OURS
from gprune.app.ui import marks, story
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, label, style
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.study.methods import METHODS

_HEIGHT = 300


@panel("neuron", "help_neuron", "One neuron, two texts")
def neuron(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """One neuron among those of its layer that move most: the selected one, or a telling one."""
    found = story.example_of(run, selected)
    return Panel(
        marks.slopes(story.movers_of(run, found.layer, found.neuron), _HEIGHT, found.neuron),
        f"Neuron {found.neuron} among those of layer {found.layer} that move most.",
        title=f"Neuron {found.neuron} of layer {found.layer}, on two texts",
        alt=f"rank {found.first:.2f} on A and {found.second:.2f} on B",
    )


@panel("kept_by_both", "help_budget", "How much each module keeps: MSL")
def kept_by_both(run: Run) -> Panel:
    """Neurons kept by GPrune, by the method that it is held against, and by both."""
    other = run.require(story.rival(run), stages.masks)
    ours, base = (run.load(stages.masks, name).ffn for name in (OURS, other))
    both, either = int((ours & base).sum()), int((ours | base).sum())
    chance = float(chance_jaccard(ours.mean(), base.mean()))
    return Panel(
        _bar(both, int(ours.sum()) - both, int(base.sum()) - both, other),
        f"Jaccard {both / max(either, 1):.2f}; two independent choices would have {chance:.2f}.",
        alt=f"{both} neurons are kept by both GPrune and {METHODS[other].label}, out of {either} that either keeps",
    )


def _bar(both: int, ours: int, base: int, other: str) -> go.Figure:
    """Neurons kept by both methods, by GPrune (`ours`) and by the other one (`base`) only, as one bar."""
    figure = go.Figure()
    parts = (
        ("only GPrune", ours, METHOD_COLORS["gprune"]),
        ("both", both, GREY),
        (f"only {label(other)}", base, METHOD_COLORS.get(other, GREY)),
    )
    for name, count, color in parts:
        inside = {"text": [f"{count:,}"], "textposition": "inside", "insidetextanchor": "middle"}
        hover = f"{name}: %{{x:,}} neurons<extra></extra>"
        marks.bars(figure, [count], [""], name, color, hover, orientation="h", **inside)
    style(figure, "neurons", "", 150, barmode="stack", margin={"l": 8, "r": 8, "t": 28, "b": 44})
    return figure.update_yaxes(visible=False)
