"""Page *Overview*: the result of a run on one screen, and the checks that support it."""

import contextlib

import streamlit as st

from gprune import records
from gprune.analysis import verdict
from gprune.app.figures import experts
from gprune.app.figures import overview as figures
from gprune.app.ui import address, components, derived_cache, documents, frame, selection, slides, story
from gprune.app.ui import card as cards
from gprune.app.ui.chart_style import METHOD_LABELS
from gprune.app.ui.page_names import PURPOSE, TOOL
from gprune.app.ui.text import escape, join_numbers, name_texts
from gprune.pipeline.runs.opened import Run
from gprune.records.experts import ExpertMasks
from gprune.system.errors import GpruneError

_ICONS = {
    "pass": ":green[:material/check_circle:]",
    "warn": ":orange[:material/warning:]",
    "unknown": ":grey[:material/help:]",
}
_FIGURE_PIXELS = 245
"""width of a figure below which the three figures are stacked; `look.css` repeats the value"""


@frame.declare_page("Overview", f"{TOOL}: {PURPOSE}. What did this run find, and can it be trusted?")
def show(run: Run) -> None:
    """Draw the page."""
    _show_headline(run)
    # the order of the argument: ranks shift, the shift exceeds noise, and pruning has a cost
    with st.grid(3, min_column_width=_FIGURE_PIXELS, key="ov_figures"):
        with cards.card_of(experts.expert_map if run.study.prunes_experts else figures.movers, run) as card:
            cards.await_drift(run, "ov_slope_waiting", "Computing the drift")
            if run.study.prunes_experts:
                card.show(experts.expert_map(run), narrow=True)
            else:
                panel = figures.movers(run, selected=selection.current_selection(run))
                card.show(panel, on_point=selection.select_mark, narrow=True)
        with cards.card_of(figures.noise, run) as card:
            cards.await_drift(run, "ov_survival_waiting", "Computing the drift")
            card.show(figures.noise(run), narrow=True)
        with cards.card_of(figures.cost, run) as card:
            card.show(figures.cost(run), narrow=True)
    if frame.is_rest_deferred():
        return
    with cards.card("ov_checks", "Can it be trusted?", run):
        _show_checks(run)


def _show_headline(run: Run) -> None:
    with components.show_errors():
        headline = story.headline(run)
        with st.container(key="ov_headline", gap="xsmall"):
            left, right = st.columns([5, 1.25], vertical_alignment="center")
            left.markdown(f"## {join_numbers(escape(headline.sentence))}")
            with right:
                slides.draw_button("ov_slides", type="primary")
                if run.complete:
                    address.link("export", "Export model", ":material/download:")
            st.caption(join_numbers(escape(name_texts(headline.detail, run.study))))


def _show_checks(run: Run) -> None:
    masks: dict[str, records.PruningMasks | ExpertMasks] = {}
    with components.show_errors():
        masks = {METHOD_LABELS.get(method, method): mask for method, mask in run.masks().items()}
    effect, seeds = None, tuple[int, ...]()
    with contextlib.suppress(GpruneError):
        effect = derived_cache.ablation_effects(run)
    with contextlib.suppress(GpruneError):
        seeds = story.compared_seeds(run)
    # the claims are on methods that prune neurons
    study = None if run.study.prunes_experts else documents.fair_study()
    claims = study.claims if study is not None else {}
    checks = verdict.checks(
        run.record, run.study, masks, story.holdout_statuses(run), effect, recorded=claims, seeds=seeds
    )
    rows = ["| check | values |", "| --- | --- |"]
    for heading, names in verdict.CHECK_ROWS.items():
        members = [check for check in checks if check.name in names]
        for name, check in zip([f"**{heading}**", *[""] * len(members)], members, strict=False):
            rows.append(f"| {name} | {_ICONS[check.verdict]} {check.name}: {join_numbers(escape(check.value))} |")
    st.markdown("\n".join(rows))
