"""Overview: what does this run say in half a minute, and can it be trusted?"""

import contextlib
from dataclasses import asdict
from typing import Any

import pandas as pd
import streamlit as st

from gprune import records
from gprune.analysis import agreement, comparison, thresholds, verdict
from gprune.analysis.formatting import percent
from gprune.app.pages.overview import panels
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
from gprune.app.ui.card import Card, await_drift, card, card_of, panel_card
from gprune.app.ui.chart_style import METHOD_LABELS, label
from gprune.app.ui.commands import command
from gprune.app.ui.page_names import PAGE_OF, PURPOSE, TOOL
from gprune.app.ui.run_choice import RUN
from gprune.app.ui.text import plain, said, short
from gprune.evaluation.protocol import lines
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import GpruneError
from gprune.system.units import duration

UNKNOWN = "–"
_VERDICTS = {
    "pass": ":green[:material/check_circle:]",
    "warn": ":orange[:material/warning:]",
    "unknown": ":grey[:material/help:]",
}
_LINKS = (
    ("drift", "Which neurons move when the text changes?"),
    ("agreement", "Do the modules survive another text?"),
    ("rasa", "Which modules are adapted?"),
    ("decisions", "Where did the budget go?"),
    ("retention", "How much can be removed? The retention curve"),
    ("compare", "Which method is better?"),
)
NARROWEST = 245
"""pixels of a figure before the three stand below each other"""


@frame.page("Overview", f"{TOOL}: {PURPOSE}. Here: what did this run find, and can it be trusted?")
def show(run: Run) -> None:
    """Draws the page."""
    _first_screen(run)
    with card("ov_tiles", "The run in numbers", run) as drawn:
        _tiles(run)
        drawn.tools(how=_HOW_TILES)
    if rest_of_page.waits():
        return
    panel_card(panels.layers, run, selection.of_point)
    left, right = st.columns([3, 2])
    with left, card("ov_checks", "Can it be trusted?", run):
        _checks(run)
    with right, card("ov_links", "Next", run):
        for place, question in _LINKS:
            places.link(place, question)
        st.page_link(
            PAGE_OF["compare"].file,
            label="Does it hold on other models? A fair comparison",
            query_params={RUN: run.name, "cp_view": "fair"},
        )
        help_drawer.open_words("What do the words mean?", "ov_words")
    with card("ov_provenance", "Provenance, and how to repeat it", run) as drawn:
        _provenance(run, drawn)


_HOW_TILES = (
    "Rank correlations are Spearman’s over the neurons of a layer, median over layers: the first between "
    "the texts, the second between halves of one text, which is what noise alone does. ARI says how far "
    "modules agree, 1 fully and 0 by chance. Perplexities are of GPrune, what others reach stands below; "
    "the question mark of each tile has its protocol."
)


def _tiles(run: Run) -> None:
    makers = _drift_tile, _floor_tile, _adapted_tile, _agreement_tile, _retention_tile
    tiles = [*(make(run) for make in makers), *_perplexity_tiles(run)]
    with st.grid(4, min_column_width=170):
        for tile in tiles:
            st.metric(border=True, delta_color="off", delta_arrow="off", **tile)


def _drift_tile(run: Run) -> dict[str, Any]:
    tile: dict[str, Any] = {"label": "Rank correlation A | B", "value": UNKNOWN}
    if run.has(stages.drift):
        cross = derived_cache.drift_curves(run.root, run.key(stages.drift), 50)[0]
        tile |= {"value": f"{cross.correlation:.2f}", "delta": f"median drift {cross.median:.3f}"}
    return tile | {
        "help": "Spearman correlation of the neurons' ranks on both texts, median over layers, by the scores "
        f"of {plain(label(run.study.metric))}. Below: half of all neurons drift further than that."
    }


def _floor_tile(run: Run) -> dict[str, Any]:
    tile: dict[str, Any] = {"label": "Rank correlation re-sampled", "value": UNKNOWN}
    if run.has(stages.drift):
        floors = derived_cache.drift_curves(run.root, run.key(stages.drift), 50)[2:]
        values = [curve.correlation for curve in floors]
        tile |= {"value": f"{min(values):.2f}", "delta": f"A {values[0]:.3f}, B {values[1]:.3f}"}
    return tile | {"help": "The same correlation between two halves of one text: all that noise alone leaves."}


def _adapted_tile(run: Run) -> dict[str, Any]:
    tile: dict[str, Any] = {"label": "Modules adapted", "value": UNKNOWN}
    if run.has(stages.modules) and run.has(stages.adapted):
        statistics = run.load(stages.modules)
        counts = thresholds.count(statistics, run.load(stages.adapted))
        tile |= {
            "value": f"{counts.adapted} of {counts.modules}",
            "delta": f"{counts.from_auxiliary} re-scored from B",
        }
    return tile | {
        "help": "Modules that are sensitive to the text and weakly supported by A (RASA); each takes its "
        "scores from the text that supports it better."
    }


def _agreement_tile(run: Run) -> dict[str, Any]:
    tile: dict[str, Any] = {"label": "Module ARI", "value": UNKNOWN}
    if run.has_agreement:
        record = run.agreement()
        found = agreement.mean_substitution(record)
        if found:
            tile |= {"value": f"{found[0]:.2f} ± {found[1]:.2f}"}
        seed, _ = agreement.controls(record)
        tile |= {"delta": f"another seed: {seed:.2f}"} if seed is not None else {}
    elif not run.study.substitute:
        tile |= {"delta": "needs a third text"}
    return tile | {
        "help": "Agreement of the modules when one calibration text is replaced: mean ± standard deviation "
        "over layers. Below it: the same texts with another seed."
    }


def _retention_tile(run: Run) -> dict[str, Any]:
    tile: dict[str, Any] = {"label": "Decoder weights kept", "value": UNKNOWN}
    # another run of the same settings may have made GPrune's masks where this one leaves GPrune out
    if "gprune" in run.masked:
        masks = run.load(stages.masks)
        tile |= {"value": percent(masks.retention, 2), "delta": f"target {percent(masks.target)}"}
    return tile | {"help": "Of the linear weights of the decoder layers, under GPrune."}


def _perplexity_tiles(run: Run) -> list[dict[str, Any]]:
    rows = {row.method: row for row in comparison.rows(derived_cache.measurements(run))}
    tiles, standings = [], story.standings(run)
    for text in run.study.evaluation.texts:
        cells = {method: row.cells[text] for method, row in rows.items() if text in row.cells}
        ours = cells.get("gprune")
        others = [f"{label(m)} {cells[m].perplexity:.1f}" for m in (run.study.metric, "dense") if m in cells]
        protocol = "; ".join(lines(cell.stamp for cell in cells.values()))
        tiles.append(
            {
                "label": f"PPL {plain(short(text))}",
                "value": f"{ours.perplexity:.1f}" if ours else UNKNOWN,
                "delta": ", ".join(others) or None,
                "help": f"Of the model pruned by GPrune; lower is better. {plain(standings[text].sentence)}. "
                f"Protocol: {plain(protocol)}.",
            }
        )
    return tiles


def _checks(run: Run) -> None:
    masks: dict[str, records.PruningMasks] = {}
    try:
        masks = {METHOD_LABELS.get(method, method): mask for method, mask in run.masks().items()}
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
    acting = None
    with contextlib.suppress(GpruneError):
        acting = derived_cache.acting(run)
    seeds: tuple[int, ...] = ()
    with contextlib.suppress(GpruneError):
        seeds = story.seeds(run)
    study = recorded.found()
    claims = study.claims if study is not None else {}
    checks = verdict.checks(run.record, run.study, masks, story.standings(run), acting, recorded=claims, seeds=seeds)
    for check in checks:
        st.markdown(f"{_VERDICTS[check.verdict]} **{check.name}:** {plain(check.value)}")


def _provenance(run: Run, drawn: Card) -> None:
    st.caption("The exact commands")
    st.code(command(run.study), language="bash", wrap_lines=True)
    record = run.record
    texts = {f"text: {role}": words for role, words in (record.get("texts") or {}).items()}
    source = {k: v for k, v in (record.get("provenance") or {}).items() if k != "inputs"}
    shape = asdict(run.shape) if run.shape else {}
    values = {
        "run": run.name,
        "started": record.get("started"),
        "wall time": duration(record.get("seconds")),
        "parameters": run.size.parameters if run.size else None,
        **shape,
        **texts,
        **source,
    }
    table = pd.DataFrame({"field": list(values), "value": [str(value) for value in values.values()]})
    with st.expander("Texts, versions and machine", icon=":material/info:"):
        tables.show(table, alt="texts, versions and machine behind this run")
    with st.expander("Time of each stage", icon=":material/timer:"):
        tables.show(_times(run), alt="seconds that each stage took")
    drawn.tools(
        lambda: table,
        switch=False,
        how="What this run has read, by which versions and on which machine. The command makes the same "
        "results from the same model and texts; reused stages took no time in this run.",
    )


def _times(run: Run) -> pd.DataFrame:
    rows = [(name, float(stage.get("seconds") or 0.0), bool(stage.get("reused"))) for name, stage in run.stages.items()]
    return pd.DataFrame(run.require(rows, stages.tokens), columns=["stage", "seconds", "reused"])


def _first_screen(run: Run) -> None:
    """Draws the sentence and the figures."""
    _headline(run)
    # in the order of the argument: ranks move, more than noise moves them, and that is what it costs
    with st.grid(3, min_column_width=NARROWEST):
        with card_of(panels.movers, run) as drawn:
            await_drift(run, "ov_slope_waiting", "Drawn here in a moment")
            shown = panels.movers(run, selected=selection.current(run))
            drawn.show(shown, on_point=selection.of_point, narrow=True)
        with card_of(panels.noise, run) as drawn:
            await_drift(run, "ov_survival_waiting", "Drawn here in a moment")
            drawn.show(panels.noise(run), narrow=True)
        with card_of(panels.cost, run) as drawn:
            drawn.show(panels.cost(run), narrow=True)


def _headline(run: Run) -> None:
    try:
        found = story.headline(run)
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
        return
    with st.container(key="ov_headline", gap="xsmall"):
        left, right = st.columns([5, 1.25], vertical_alignment="center")
        left.markdown(f"## {plain(found.sentence)}")
        with right:
            tour.begin_button()
        st.caption(plain(found.detail))
