"""The figures of the view of methods by name, each from a run and what can be set beside its card."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec

from gprune.analysis import choices, generalization, kept_units
from gprune.analysis import comparison as analysis
from gprune.analysis import recovery as recovered_models
from gprune.analysis.generalization import Place
from gprune.analysis.kept_units import KINDS, NEURONS
from gprune.analysis.paired_test import Measurement
from gprune.analysis.verdict import winners
from gprune.app.pages.comparison import charts
from gprune.app.pages.comparison.lines import Shown, both_masks, comparable, default_of, shown_of
from gprune.app.ui import derived_cache, marks, story
from gprune.app.ui.chart_style import METHOD_LABELS, label
from gprune.app.ui.panel import Asked, Panel, PanelFunction, panel
from gprune.app.ui.text import in_figure, plain
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.records import Choice, Perplexity
from gprune.study.methods import METHODS, RECOMMENDED
from gprune.study.settings import require_choice
from gprune.study.study import short
from gprune.system.errors import MethodError
from gprune.system.units import listed

P = ParamSpec("P")
LINES: dict[str, Any] = {"runs": (), "methods": (), "together": True, "pinned": ""}
"""what is compared, as options: the run at hand and all its methods, where nothing is given"""


def _lines(run: Run, values: Mapping[str, Any], **reads: str) -> dict[str, Any]:
    """What of the lines is set in an address, and other options that are."""
    reads = {"methods": "cp_methods", "together": "cp_seeds", "pinned": "cp_pinned"} | reads
    found = {option: values[key] for option, key in reads.items() if values.get(key) not in (None, "", [])}
    runs = tuple(values.get("cp_runs") or ())
    return found | ({"runs": runs} if runs not in ((), (run.name,)) else {})


def _every_text(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    asked = _lines(run, values)
    return [{"text": text} | asked for text in shown_of(run, **asked).texts]


def _lines_panel(
    name: str, card: str, heading: str, reads: Asked = lambda run, values: [_lines(run, values)]
) -> Callable[[Callable[P, Panel]], PanelFunction[P]]:
    """Declares a figure of lines, which `reads` finds in an address."""
    return panel(name, card, heading, reads=reads, group=LINES)


@_lines_panel("perplexity", "cp_charts", "Perplexity on a log axis", _every_text)
def perplexity(run: Run, *, text: str = "", _shown: Shown | None = None, **asked: Any) -> Panel:
    """Perplexity of every method on a text, an unseen one where none is named."""
    shown = _shown or shown_of(run, **asked)
    require_choice("text", text or shown.texts[0], tuple(shown.texts))
    return Panel(
        charts.dots(shown.lines, text or shown.texts[0], _names(shown)),
        "Whiskers are each method's own 95 % interval; the dotted line is the dense model.",
        alt=f"perplexity of every method on {text}",
        table=lambda: analysis.long_table(shown.rows, None, METHOD_LABELS),
        how="Whiskers are each method's own 95 % interval, over windows or over the n seeds; with a "
        "single one there is none. All methods of a run read the same windows, so "
        "overlapping whiskers decide nothing: the table's differences are paired.",
    )


@_lines_panel("differences", "cp_changes", "Difference to the baseline")
def differences(run: Run, *, _shown: Shown | None = None, **asked: Any) -> Panel:
    """Difference of every method to the baseline, window by window."""
    shown = _shown or shown_of(run, **asked)
    figure = charts.changes(shown.lines, shown.pinned, shown.texts, _names(shown))
    if figure is None:
        raise MethodError(f"no other method was measured on the windows of {shown.names[shown.pinned.name]}")
    pinned = plain(shown.names[shown.pinned.name])
    return Panel(
        figure,
        f"Left of the line is better than {pinned}; whiskers are the 95 % interval of the difference.",
        title=f"Difference to {pinned}",
        table=lambda: analysis.long_table(shown.rows, shown.pinned.name, METHOD_LABELS),
        how="Both methods read the same windows of a text, so the difference is taken window by window and "
        "its error is that of these differences: far smaller than the error of either perplexity. Pale marks "
        "have an interval that holds 0, or are of another retention. With several seeds the error "
        "over seeds is added in quadrature. Methods that read other windows are left out.",
    )


@_lines_panel("generalization", "cp_home", "Home and abroad")
def home_and_abroad(run: Run, *, _shown: Shown | None = None, **asked: Any) -> Panel:
    """Perplexity on unseen text against that on the corpora of A and B, a mark a method and repair."""
    shown = _shown or shown_of(run, **asked)
    home, abroad = generalization.home_and_unseen(shown.standing, shown.texts)
    found = generalization.places(shown.lines, home, abroad) if home and abroad else []
    if not found:
        raise MethodError(
            "home and abroad needs a method and its dense model, measured on a text of the corpus of A or B "
            "and on an unseen one"
        )
    best = [one for name in winners(shown.ranking(*abroad)) for one in found if one.line.name == name]
    least = f"{listed([shown.names[one.line.name] for one in best])} {'lose' if best[1:] else 'loses'} least"
    title = f"On unseen text {plain(least)}: {1 + best[0].abroad.change:.2f} times the dense perplexity" if best else ""
    return Panel(
        charts.home_and_abroad(found, shown.names),
        f"At home: {plain(', '.join(home))}; abroad: {plain(', '.join(abroad))}; geometric means over the "
        "texts. Above the dotted line a method loses more on unseen text than at home.",
        title=title,
        table=lambda: generalization.generalization_table(found, shown.names, _given(found, shown)),
        how="Each mark is a method of a run, whiskers are the 95 % interval, paired with the dense model by "
        "window. Marks of one method in several runs are joined: with a run of each repair the line shows "
        "whether what a repair gains on the corpora that it was fitted to holds on unseen text. Right and up "
        "is worse.",
    )


@panel("recovery", "cp_recovery", "After recovery", reads={"text": "cp_recovery_text"})
def recovery(run: Run, *, text: str = "") -> Panel:
    """Perplexity of every pruned method before and after its recovery, on the first text or a named one."""
    if not stages.recovers(run.study):
        raise MethodError("no method of this run was trained on: its recovery.kind is none")
    found = recovered_of(run)
    if not found:
        raise MissingResultError("the perplexity of a recovered method")
    texts = tuple(dict.fromkeys(one.text for one in found))
    require_choice("text", text or texts[0], texts)
    shown = recovered_models.recoveries_on(found, text or texts[0])
    first = next((one for one in shown if one.method == "gprune"), shown[0])
    there = analysis.DENSE in run.study.methods and run.has(stages.perplexity, analysis.DENSE, first.text)
    dense = run.load(stages.perplexity, analysis.DENSE, first.text) if there else None
    return Panel(
        charts.recovered(shown, first.text, None if dense is None else dense.perplexity),
        f"Trained by {plain(stages.recovery_label(run.graph))}. The hollow mark is the method before, the "
        "full one after; the dotted line is the dense model.",
        title=f"Recovery takes {plain(label(first.method))} from {first.before.perplexity:.2f} to "
        f"{first.after.perplexity:.2f} on {plain(short(first.text))}",
        alt=f"perplexity of every method before and after recovery on {short(first.text)}",
        table=lambda: recovered_models.recovery_table(found, label),
        how="Every pruned model learns from the dense one, by the same steps on the same sequences, and is "
        "measured on the windows that it was measured on before. Recovery changes weights by training: its "
        "figures stand here alone, and are compared with no method that was not trained. Changes are paired "
        "by window, ± the 95 % interval.",
    )


def recovered_of(run: Run) -> list[recovered_models.Recovered]:
    """Every method and text of a run that was measured after recovery, unseen texts first.

    Raises StoreError where a result is damaged.
    """
    if not stages.recovers(run.study):
        return []
    standing, graph = story.standings(run), run.graph
    texts = sorted(run.study.evaluation.texts, key=lambda text: not standing[text].unseen)
    cutting = [name for name in run.study.methods if METHODS[name].decision != "none"]
    pairs = (
        (stages.perplexity(graph, name, text), stages.recovered_perplexity(graph, name, text))
        for text in texts
        for name in cutting
    )
    return [
        recovered_models.Recovered(*(_measured(run, stage) for stage in pair))
        for pair in pairs
        if all(map(run.there, pair))
    ]


def _measured(run: Run, stage: stages.Stage[Perplexity]) -> Measurement:
    text = run.study.evaluation.texts[stage.id.item or 0]
    return derived_cache.measurement(run, stage.id.method, text, stage, float("nan"), 0)


@panel("choice", "cp_choice", "What was tried")
def choice(run: Run) -> Panel:
    """The candidates among which a repair, or masks and repair, were chosen, each by its number."""
    made = chosen_of(run)
    if not made:
        raise MethodError("nothing is chosen by measurement in this run, or it has not come that far")
    found, one = tried_of(run, made), next(iter(made.values()))
    winners = [f"{METHODS[best.method].label}: {best.repair}" for best in found if best.chosen]
    recipe = next((best for best in found if best.chosen and best.method == RECOMMENDED), None)
    if recipe is not None:
        winners = [f"masks of {METHODS[recipe.masks].label}, {recipe.repair}"]
    return Panel(
        charts.tried(found),
        f"A mark is a candidate, the filled one was chosen; the number is {choices.weighting(one)}, on "
        f"{one.sequences} sequences of each text that took part in nothing.",
        title=f"What was tried; chosen on held-out text: {plain('; '.join(winners[:3]))}",
        table=lambda: choices.candidate_table(found),
        how="Left is better, 1 is the reference: the same masks not repaired, for the recommended recipe the "
        "first method's. The sequences are drawn beside the calibration ones and share no tokens with them; "
        "divergence is from the dense model, on text that it wrote under a seed of its own. No evaluation "
        "text takes part, so that figures on these stay evidence. Whoever wins among several wins partly by "
        "luck: on unseen text another one may be best.",
    )


def chosen_of(run: Run) -> dict[str, Choice]:
    """What was chosen in a run, by method; of methods with equal masks the first."""
    known = {name: stages.made(run.results, name) for name in run.study.methods}
    masks = {METHODS[name].masks: name for name in reversed(known)}
    return {name: one for name, one in known.items() if one is not None and masks[METHODS[name].masks] == name}


def tried_of(run: Run, made: Mapping[str, Choice]) -> list[choices.Tried]:
    """The candidates of some choices of a run."""
    return choices.tried(made, lambda word: stages.described(run.graph, word))


@_lines_panel(
    "kept_units", "cp_units", "Units that two methods keep",
    lambda run, values: [_lines(run, values, other="cp_other", kind="cp_kind")],
)  # fmt: skip
def kept_units_by_layer(
    run: Run,
    *,
    other: str = "",
    kind: str = NEURONS,
    selected: Selection = NOTHING,
    _shown: Shown | None = None,
    **asked: Any,
) -> Panel:
    """Units of each layer that the baseline and another one keep, and that both keep."""
    shown = _shown or shown_of(run, **asked)
    first, others = comparable(shown)
    require_choice("kind", kind, tuple(KINDS))
    if first is None or not others:
        raise MethodError("kept units need the masks of two methods on the same model")
    require_choice("other", other or default_of(others), tuple(others))
    second = others[other or default_of(others)]
    pair = both_masks(shown, first, second)
    if pair is None:
        raise MethodError("these masks are of models of another shape")
    names = shown.names[first.name], shown.names[second.name]
    found = kept_units.overlap(*pair, kind)
    drawn = in_figure(names[0]), in_figure(names[1])
    figure = charts.kept(found, (first.method, second.method), drawn, kind)
    marks.layer_line(figure, selected)
    return Panel(
        figure,
        f"Of each layer's {KINDS[kind]}: kept by both or by one only; the rest is kept by neither.",
        title=f"{plain(names[1])} and {plain(names[0])} share {KINDS[kind]} at a Jaccard of "
        f"{found.jaccard:.2f}, where chance gives {found.chance:.2f}",
        table=lambda: kept_units.layer_table(found, *names),
        how="The Jaccard index is what both keep among what either keeps. By chance: what choices that do "
        "not depend on each other, of the same sizes in every layer, would share. Methods that differ in "
        "their repair only have the same masks. Of several seeds the first is shown.",
    )


def _given(found: list[Place], shown: Shown) -> dict[tuple[str, str], tuple[str, str]]:
    """The texts of the masks and the repair of lines, by their names."""
    runs, told = {run.name: run for run in shown.runs}, {}
    for line in (place.line for place in found):
        one = stages.given(runs[line.rows[0].run].results, line.method)
        if one is not None:
            told[line.name] = listed(one.texts) or "none", one.repaired_with or "none"
    return told


def _names(shown: Shown) -> dict[tuple[str, str], str]:
    """What to call the lines in a figure."""
    return {line.name: in_figure(shown.names[line.name]) for line in shown.lines}
