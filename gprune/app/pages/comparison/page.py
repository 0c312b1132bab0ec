"""Compare: which method is better, by how much, is it beyond noise, and at the same budget?

Four views: the methods of runs side by side, the studies of the paper made here, the fair comparison that
comes with the project, and what the paper reports.
"""

from typing import Any

import streamlit as st

from gprune.analysis import kept_units, run_settings
from gprune.analysis.comparison import Line, Row
from gprune.analysis.formatting import signed
from gprune.analysis.kept_units import KINDS, NEURONS
from gprune.app.pages.comparison import inputs_card, methods_table, panels, paper, study_cards
from gprune.app.pages.comparison import lines as compared
from gprune.app.pages.comparison.lines import Shown, asked_of
from gprune.app.ui import (
    derived_cache,
    frame,
    recorded,
    rest_of_page,
    run_choice,
    selection,
    tables,
    url_state,
)
from gprune.app.ui.card import Card, card, card_of
from gprune.app.ui.chart_style import label
from gprune.app.ui.panel import PanelFunction
from gprune.app.ui.run_choice import labels
from gprune.app.ui.text import plain, said
from gprune.experiments.reproduction.documents import MEASURED, VERDICTS
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.study.methods import METHODS
from gprune.study.study import short
from gprune.system.errors import MethodError

METHODS_VIEW, STUDIES, RECORDED, PAPER = "methods", "studies", "fair", "paper"
_RUNS = "cp_runs"
_LAST = "cp_last_run"
_TRIED = 16
"""candidates that the table shows at once"""


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Methods and studies",
        "Which method is better, by how much, is it beyond noise, and at the same budget?",
    )
    run = frame.require_run()
    view = url_state.segmented(
        "View",
        {METHODS_VIEW: "Methods", STUDIES: "Studies", RECORDED: "Fair study", PAPER: "Paper"},
        "cp_view",
        METHODS_VIEW if run else PAPER,
        label_visibility="collapsed",
        help="Methods of the chosen runs; tables of the paper made here; the fair comparison on other models "
        "that comes with GPrune Studio; the paper’s own figures.",
    )
    if view == STUDIES:
        study_cards.show(run)
    elif view == RECORDED:
        _recorded()
    elif view == PAPER:
        paper.show()
    elif run is not None:
        _methods(run)


def _methods(run: Run) -> None:
    runs = _runs(run)
    shown: Shown | None = None
    with card("cp_table", "Perplexity of every method", run) as drawn:
        shown = _shown(runs)
        methods_table.show(drawn, shown)
    if rest_of_page.waits():
        return
    if len(runs) > 1:
        with card("cp_settings", "Settings in which the runs differ", run) as drawn:
            _settings(drawn, runs)
    if shown is None:
        return
    with card("cp_given", "Calibration data and compute per method", run) as drawn:
        inputs_card.show(drawn, shown)
    if run.study.chooses:
        with card_of(panels.choice, run) as drawn:
            _choice(drawn, run)
    with card_of(panels.differences, run) as drawn:
        _drawn(drawn, run, shown, panels.differences)
    with card_of(panels.home_and_abroad, run) as drawn:
        _drawn(drawn, run, shown, panels.home_and_abroad)
    if stages.recovers(run.study):
        with card_of(panels.recovery, run) as drawn:
            _recovery(drawn, run)
    with card_of(panels.perplexity, run) as drawn:
        _perplexities(drawn, run, shown)
    with card_of(panels.kept_units_by_layer, run) as drawn:
        _kept_units(run, drawn, shown)


def _settings(drawn: Card, runs: list[Run]) -> None:
    """A small table of what differs; where nothing does, a sentence."""
    known = labels(runs)
    table = run_settings.differences({known[run.name]: run.study for run in runs})
    if table.empty:
        st.caption("These runs have the same settings.")
        return
    count = len(table)
    drawn.title(f"The runs differ in {count} setting{'s' if count > 1 else ''}")
    drawn.table(
        table,
        alt="settings in which the runs differ",
        how="A row is a setting, a column a run. All settings that are not listed are the same, so that a "
        "difference between the runs comes from these.",
    )


def _choice(drawn: Card, run: Run) -> None:
    """Draws what was tried before something was chosen, always with its table."""
    try:
        made = panels.choice(run)
    except MethodError as reason:
        st.info(f"{str(reason)[:1].upper()}{str(reason)[1:]}.", icon=":material/hourglass_empty:")
        return
    drawn.show(made, switch=False)
    if made.table is not None:
        table = made.table()
        tables.show(
            table,
            forms={name: "%.4g" for name in table if table[name].dtype.kind == "f"},
            height=tables.height(min(len(table), _TRIED)),
            alt="what was tried, with every figure",
        )


def _drawn(drawn: Card, run: Run, shown: Shown, figure: PanelFunction[...]) -> None:
    """Draws a figure of the lines, or says why it cannot be."""
    try:
        made = figure(run, **asked_of(run, shown), _shown=shown)
    except MethodError as reason:
        words = said(reason)
        st.info(f"{words[:1].upper()}{words[1:]}.", icon=":material/hourglass_empty:")
        return
    drawn.show(made)


def _recovery(drawn: Card, run: Run) -> None:
    """Draws the methods of the run before and after recovery, and the numbers of all texts."""
    texts = {one.text: short(one.text) for one in panels.recovered_of(run)}
    text = next(iter(texts), "")
    if len(texts) > 1:
        text = url_state.segmented("Text", texts, "cp_recovery_text", text)
    made = panels.recovery(run, text=text)
    drawn.show(made)
    if made.table is not None:
        table = made.table()
        changes = zip(table.pop("change %"), table.pop("± %"), strict=True)
        table["change"] = [f"{signed(change, '.1f')} ± {error:.1f} %" for change, error in changes]
        table["text"] = [texts[text] for text in table["text"]]
        forms = {"before": "%.2f", "after recovery": "%.2f"}
        tables.show(table, forms=forms, alt="perplexities before and after recovery")


def _perplexities(drawn: Card, run: Run, shown: Shown) -> None:
    asked = asked_of(run, shown)
    made = [panels.perplexity(run, text=text, **asked, _shown=shown) for text in shown.texts]
    for text, one in zip(shown.texts, made, strict=True):
        drawn.offers(one)
        config = {
            "displaylogo": False,
            "toImageButtonOptions": {"format": "svg", "filename": f"{run.name}-ppl"},
        }
        with st.container(key=f"wide_cp_{text}"):
            st.plotly_chart(one.figure, key=f"cp_chart_{text}", config=config, alt=one.alt)
    st.caption(made[0].caption)
    drawn.tools(made[0].table, how=made[0].how)


def _runs(run: Run) -> list[Run]:
    """Asks for the runs; as long as only one is shown, it is that of the frame."""
    situation = frame.situation()
    _shown = url_state.several(_RUNS, [other.name for other in situation.runs], [run.name])
    last = st.session_state.get(_LAST, run.name)
    if last != run.name and _shown == [last]:
        _shown = [run.name]
        url_state.put(_RUNS, _shown)
    st.session_state[_LAST] = run.name
    known = labels(situation.runs)
    listed = run_choice.listed(situation.runs, (run.name, *_shown))
    names = {other.name: run_choice.run_label(other, known) for other in listed}
    asked = url_state.multiselect("Runs side by side", names, _RUNS, [run.name])
    found = [other for name in asked if (other := situation.run_named(name)) is not None]
    for other in found:
        if not derived_cache.measured(other):
            st.caption(f"{plain(known[other.name])} has no perplexities yet.")
    return found or [run]


def _shown(chosen: list[Run]) -> Shown:
    """Asks for methods, the pinned line and how seeds are shown; MissingResultError without a perplexity."""
    rows = compared.measured_rows(chosen)
    groups = run_settings.seed_groups({run.name: run.study for run in chosen})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        methods = _picked(rows)
        several = run_settings.has_several_seeds(groups)
        together = not several or url_state.toggle("Seeds together", "cp_seeds", True)
        found = compared.composed(chosen, rows, methods, together=together)
        pinned = _pinned(found)
        differences = url_state.toggle("Show differences", "cp_deltas", True)
    return compared.composed(chosen, rows, methods, together=together, pinned=pinned, differences=differences)


def _picked(rows: list[Row]) -> list[str]:
    """Asks for methods; none means all."""
    there = {row.method for row in rows}
    options = [name for name in METHODS if name in there]
    picked = url_state.several("cp_methods", options, ())
    count = len(picked) or len(options)
    with st.popover(f"Methods: {count} of {len(options)}", icon=":material/filter_list:", key="cp_filter"):
        names = {name: label(name) for name in options}
        return url_state.multiselect("Methods", names, "cp_methods", (), placeholder="all methods")


def _pinned(found: Shown) -> str:
    """Asks for the line that the others are compared with, as an address names it."""
    measured, default = compared.measured_lines(found.lines, found.runs[0].study.metric)
    options = {key: found.names[line.name] for key, line in measured.items()}
    return url_state.selectbox("Baseline", options, "cp_pinned", default, width=260)


def _kept_units(run: Run, drawn: Card, shown: Shown) -> None:
    """Draws the table of both kinds of units and the bars of one; StoreError where masks are damaged."""
    pinned, lines = compared.comparable(shown)
    others = {key: shown.names[line.name] for key, line in lines.items()}
    if pinned is None or not others:
        st.info("Needs the masks of two methods on the same model.", icon=":material/hourglass_empty:")
        return
    ours = compared.default_of(lines)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = url_state.selectbox(f"Beside {plain(shown.names[pinned.name])}", others, "cp_other", ours, width=260)
        kind = url_state.segmented("Units by layer", KINDS, "cp_kind", NEURONS)
    asked: dict[str, Any] = {"other": "" if key == ours else key, "kind": kind}
    _kept_pair(run, drawn, (pinned, lines[key]), shown, asked)


def _kept_pair(run: Run, drawn: Card, pair: tuple[Line, Line], shown: Shown, asked: dict[str, Any]) -> None:
    masks = compared.both_masks(shown, *pair)
    if masks is None:
        st.info("These masks are of models of another shape.", icon=":material/hourglass_empty:")
        return
    names = shown.names[pair[0].name], shown.names[pair[1].name]
    found = {name: kept_units.overlap(*masks, name) for name in KINDS}
    options = asked | asked_of(run, shown)
    made = panels.kept_units_by_layer(run, **options, selected=selection.current(run), _shown=shown)
    drawn.title(made.title)
    tables.show(
        kept_units.total_table(found, *names),
        forms={"Jaccard": "%.3f", "by chance": "%.3f"},
        alt=f"units kept by {names[0]} and {names[1]}",
    )
    drawn.show(made)


def _recorded() -> None:
    """Draws the document: which claims hold, and behind them every table."""
    found = recorded.found()
    with card("cp_recorded", "A fair comparison on other models") as drawn:
        if found is None:
            st.info(
                "The document is not among the files of this installation. `python -m gprune reproduce study "
                "--report study.md` measures the bundled model and writes one.",
                icon=":material/menu_book:",
            )
            return
        drawn.title(found.title)
        st.badge(
            "recorded, not of this run",
            icon=":material/history_edu:",
            color="grey",
            help="Measured once by the command that it names; it can be repeated, and names models, texts, "
            "seeds and windows.",
        )
        parts = dict(found.parts)
        measured = [line for line in found.opening.splitlines() if line.startswith(MEASURED)]
        st.caption(" ".join(measured).removesuffix(":"))
        if verdicts := parts.pop(VERDICTS, ""):
            st.subheader(VERDICTS)
            st.markdown(verdicts)
        with st.expander("What was measured, and by which command"):
            st.markdown(found.opening)
        for heading, text in parts.items():
            with st.expander(heading):
                st.markdown(text)
        st.download_button("Markdown", found.text, "study.md", "text/markdown", icon=":material/download:")
