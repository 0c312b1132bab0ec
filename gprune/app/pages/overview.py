"""Page *Overview*: the result of a run on one screen, and the checks that support it."""

import contextlib
from dataclasses import asdict
from typing import Any

import pandas as pd
import streamlit as st

from gprune import records
from gprune.analysis import agreement, comparison, verdict
from gprune.analysis.formatting import percent
from gprune.app.figures import overview as figures
from gprune.app.ui import card as cards
from gprune.app.ui import (
    derived_cache,
    frame,
    help_drawer,
    places,
    recorded,
    rest_of_page,
    selection,
    story,
    tables,
    tour,
)
from gprune.app.ui.chart_style import METHOD_LABELS, label
from gprune.app.ui.commands import command
from gprune.app.ui.page_names import PAGE_OF, PURPOSE, TOOL
from gprune.app.ui.run_choice import RUN
from gprune.app.ui.text import join_numbers, plain, said, short
from gprune.evaluation.protocol import lines
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import GpruneError
from gprune.system.units import duration

_UNKNOWN = "–"
_ICONS = {
    "pass": ":green[:material/check_circle:]",
    "warn": ":orange[:material/warning:]",
    "unknown": ":grey[:material/help:]",
}
_LINKS = {
    "drift": "Which neurons move when the text changes?",
    "agreement": "Do the modules survive another text?",
    "rasa": "Which modules are adapted?",
    "decisions": "Where did the budget go?",
    "retention": "How much can be removed? The retention curve",
    "compare": "Which method is better?",
}
_FIGURE_PIXELS = 245
"""width of a figure below which the three stand below each other"""
_HOW_TILES = (
    "Rank correlations are Spearman’s over the neurons of a layer, median over layers: the first between "
    "the texts, the second between halves of one text, which is what noise alone does. ARI says how far "
    "modules agree, 1 fully and 0 by chance. Perplexities are of GPrune, what others reach stands below; "
    "the question mark of each tile has its protocol."
)


@frame.page("Overview", f"{TOOL}: {PURPOSE}. Here: what did this run find, and can it be trusted?")
def show(run: Run) -> None:
    """Draw the page."""
    _show_headline(run)
    # in the order of the argument: ranks move, more than noise moves them, and that is what it costs
    with st.grid(3, min_column_width=_FIGURE_PIXELS):
        with cards.card_of(figures.movers, run) as card:
            cards.await_drift(run, "ov_slope_waiting", "Drawn here in a moment")
            panel = figures.movers(run, selected=selection.current(run))
            card.show(panel, on_point=selection.of_point, narrow=True)
        with cards.card_of(figures.noise, run) as card:
            cards.await_drift(run, "ov_survival_waiting", "Drawn here in a moment")
            card.show(figures.noise(run), narrow=True)
        with cards.card_of(figures.cost, run) as card:
            card.show(figures.cost(run), narrow=True)
    with cards.card("ov_tiles", "The run in numbers", run) as card:
        with st.grid(4, min_column_width=170):
            for tile in (*_drift_tiles(run), *_module_tiles(run), *_perplexity_tiles(run)):
                st.metric(border=True, delta_color="off", delta_arrow="off", **({"value": _UNKNOWN} | tile))
        card.tools(how=_HOW_TILES)
    if rest_of_page.waits():
        return
    cards.panel_card(figures.layers, run, selection.of_point)
    left, right = st.columns([3, 2])
    with left, cards.card("ov_checks", "Can it be trusted?", run):
        _show_checks(run)
    with right, cards.card("ov_links", "Next", run):
        for place, question in _LINKS.items():
            places.link(place, question)
        st.page_link(
            PAGE_OF["compare"].file,
            label="Does it hold on other models? A fair comparison",
            query_params={RUN: run.name, "cp_view": "fair"},
        )
        help_drawer.open_words("What do the words mean?", "ov_words")
    with cards.card("ov_provenance", "Provenance, and how to repeat it", run) as card:
        _show_provenance(run, card)


def _show_headline(run: Run) -> None:
    try:
        headline = story.headline(run)
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
        return
    with st.container(key="ov_headline", gap="xsmall"):
        left, right = st.columns([5, 1.25], vertical_alignment="center")
        left.markdown(f"## {join_numbers(plain(headline.sentence))}")
        with right:
            tour.begin_button()
        st.caption(join_numbers(plain(headline.detail)))


def _drift_tiles(run: Run) -> list[dict[str, Any]]:
    across = {
        "label": "Rank correlation A | B",
        "help": "Spearman correlation of the neurons' ranks on both texts, median over layers, by the scores "
        f"of {plain(label(run.study.metric))}. Below: half of all neurons drift further than that.",
    }
    resampled = {
        "label": "Rank correlation re-sampled",
        "help": "The same correlation between two halves of one text: all that noise alone leaves.",
    }
    if run.has(stages.drift):
        cross, _, *floors = derived_cache.drift_curves(run.root, run.key(stages.drift), 50)
        first, second = (curve.correlation for curve in floors)
        across |= {"value": f"{cross.correlation:.2f}", "delta": f"median drift {cross.median:.3f}"}
        resampled |= {"value": f"{min(first, second):.2f}", "delta": f"A {first:.3f}, B {second:.3f}"}
    return [across, resampled]


def _module_tiles(run: Run) -> list[dict[str, Any]]:
    adapted = {
        "label": "Modules adapted",
        "help": "Modules that are sensitive to the text and weakly supported by A (RASA); each takes its "
        "scores from the text that supports it better.",
    }
    if run.has(stages.modules) and run.has(stages.adapted):
        counts = story.counts(run)
        adapted["value"] = f"{counts.adapted} of {counts.modules}"
        adapted["delta"] = f"{counts.from_auxiliary} re-scored from B"
    ari = {
        "label": "Module ARI",
        "help": "Agreement of the modules when one calibration text is replaced: mean ± standard deviation "
        "over layers. Below it: the same texts with another seed.",
    }
    if run.has_agreement:
        record = run.agreement()
        if level := agreement.mean_substitution(record):
            ari["value"] = f"{level[0]:.2f} ± {level[1]:.2f}"
        seed, _ = agreement.controls(record)
        if seed is not None:
            ari["delta"] = f"another seed: {seed:.2f}"
    elif not run.study.substitute:
        ari["delta"] = "needs a third text"
    retention = {
        "label": "Decoder weights kept",
        "help": "Of the linear weights of the decoder layers, under GPrune.",
    }
    # another run of the same settings may have made GPrune's masks where this one leaves GPrune out
    if "gprune" in run.masked:
        masks = run.load(stages.masks)
        retention |= {"value": percent(masks.retention, 2), "delta": f"target {percent(masks.target)}"}
    return [adapted, ari, retention]


def _perplexity_tiles(run: Run) -> list[dict[str, Any]]:
    rows = {row.method: row for row in comparison.rows(derived_cache.measurements(run))}
    tiles, holdouts = [], story.standings(run)
    for text in run.study.evaluation.texts:
        cells = {method: row.cells[text] for method, row in rows.items() if text in row.cells}
        gprune = cells.get("gprune")
        references = [
            f"{label(method)} {cells[method].perplexity:.1f}"
            for method in (run.study.metric, "dense")
            if method in cells
        ]
        protocol = "; ".join(lines(cell.stamp for cell in cells.values()))
        tiles.append(
            {
                "label": f"PPL {plain(short(text))}",
                "value": f"{gprune.perplexity:.1f}" if gprune else _UNKNOWN,
                "delta": ", ".join(references) or None,
                "help": f"Of the model pruned by GPrune; lower is better. {plain(holdouts[text].sentence)}. "
                f"Protocol: {plain(protocol)}.",
            }
        )
    return tiles


def _show_checks(run: Run) -> None:
    masks: dict[str, records.PruningMasks] = {}
    try:
        masks = {METHOD_LABELS.get(method, method): mask for method, mask in run.masks().items()}
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
    effect, seeds = None, tuple[int, ...]()
    with contextlib.suppress(GpruneError):
        effect = derived_cache.acting(run)
    with contextlib.suppress(GpruneError):
        seeds = story.seeds(run)
    study = recorded.found()
    claims = study.claims if study is not None else {}
    checks = verdict.checks(run.record, run.study, masks, story.standings(run), effect, recorded=claims, seeds=seeds)
    for check in checks:
        st.markdown(f"{_ICONS[check.verdict]} **{check.name}:** {join_numbers(plain(check.value))}")


def _show_provenance(run: Run, card: cards.Card) -> None:
    st.caption("The exact commands")
    st.code(command(run.study), language="bash", wrap_lines=True)
    record = run.record
    texts = {f"text: {role}": description for role, description in (record.get("texts") or {}).items()}
    source = {name: value for name, value in (record.get("provenance") or {}).items() if name != "inputs"}
    values = {
        "run": run.name,
        "started": record.get("started"),
        "wall time": duration(record.get("seconds")),
        "parameters": run.size.parameters if run.size else None,
        **(asdict(run.shape) if run.shape else {}),
        **texts,
        **source,
    }
    table = pd.DataFrame({"field": list(values), "value": [str(value) for value in values.values()]})
    with st.expander("Texts, versions and machine", icon=":material/info:"):
        tables.show(table, alt="texts, versions and machine behind this run")
    with st.expander("Time of each stage", icon=":material/timer:"):
        times = [
            (name, float(stage.get("seconds") or 0.0), bool(stage.get("reused"))) for name, stage in run.stages.items()
        ]
        columns = ["stage", "seconds", "reused"]
        tables.show(
            pd.DataFrame(run.require(times, stages.tokens), columns=columns), alt="seconds that each stage took"
        )
    card.tools(
        lambda: table,
        switch=False,
        how="What this run has read, by which versions and on which machine. The command makes the same "
        "results from the same model and texts; reused stages took no time in this run.",
    )
