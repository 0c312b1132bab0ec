"""Tab *Methods* of Compare: a table and an interval plot of the same rows, the Pareto chart, and what methods used."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import comparison as analysis
from gprune.analysis.comparison import MethodResult
from gprune.analysis.decision import COSTS, PARAMETERS, cheapest
from gprune.analysis.formatting import format_signed
from gprune.analysis.paired_test import BETTER, NOISE, WORSE, Difference
from gprune.analysis.table import escape_formula
from gprune.analysis.verdict import (
    BEST,
    RETENTION_OF_EXPERTS,
    SECOND,
    against_control,
    is_comparable,
    leading_pair,
    obstacles,
    opponents,
    stars,
    winners,
)
from gprune.app.figures import comparison as figures
from gprune.app.figures.comparison import Comparison
from gprune.app.ui import address, derived_cache, frame, run_choice, tables
from gprune.app.ui.card import Card, card, card_of
from gprune.app.ui.chart_style import METHOD_LABELS, label
from gprune.app.ui.run_choice import labels
from gprune.app.ui.text import escape, escape_error, name_texts, short_text
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.pipeline.stages import MethodInputs, Results
from gprune.study.methods import ALL_METHODS
from gprune.system.errors import GpruneError, MethodError
from gprune.system.units import join_words

_SIGNS = {BETTER: "▼", WORSE: "▲", NOISE: "≈"}
_WIDTHS = (7, 4)
"""relative widths of the table and the interval plot"""
_RUNS_WIDTH = 260
_RUNS = "cp_runs"
_LAST_RUN = "cp_last_run"
"""session key: the run of the sidebar when the page was last drawn"""
_INPUT_VIEW, _INPUTS, _CANDIDATES, _RECOVERY = "cp_origin", "given", "tried", "recovered"
"""key in the address of the view of the last card, and its values"""
_MOST_CANDIDATES = 16
"""rows of the table of candidates that are visible without scrolling"""
_CONTROL_NOTE = (
    "Every control uses GPrune’s key/value groups (`sparsity.attention=gprune`), so it differs from GPrune only in "
    "neurons."
)


@frame.declare_page(
    "Methods", "Which method is better, by how much, and is the difference beyond noise at the same budget?"
)
def show(run: Run) -> None:
    """Draw the page."""
    try:
        with st.container(horizontal=True, vertical_alignment="bottom"):
            runs = _choose_runs(run)
            compared, text = _choose_lines(runs)
    except GpruneError as error:
        with card("cp_table", "Perplexity of every method", run):
            raise error
        return
    st.markdown(escape(_introduce(runs, compared, text)))
    left, right = st.columns(_WIDTHS)
    with left, card("cp_table", "Perplexity of every method", run) as content:
        _show_table(content, compared, text)
    with right:
        _show_intervals(run, compared, text)
    if frame.is_rest_deferred():
        return
    with card_of(figures.trade_off, run) as content:
        _show_pareto(content, run, text)
    _show_method_inputs(run, compared)


def _choose_runs(run: Run) -> list[Run]:
    situation = frame.situation()
    shown = address.read_list(_RUNS, [other.name for other in situation.runs], [run.name])
    last = st.session_state.get(_LAST_RUN, run.name)
    if last != run.name and shown == [last]:
        # a page that shows one run follows the sidebar
        shown = [run.name]
        address.set_value(_RUNS, shown)
    st.session_state[_LAST_RUN] = run.name
    # next to a run that prunes neurons, runs that prune experts are shown only on request
    units = {run.study.unit, "neuron"}
    runs = [other for other in situation.runs if other.study.unit in units or other.name in shown]
    run_labels = labels(runs)
    offered = run_choice.listed_runs(runs, (run.name, *shown))
    names = {other.name: run_choice.run_label(other, run_labels) for other in offered}
    chosen = address.multiselect("Runs", names, _RUNS, [run.name], width="stretch" if shown[1:] else _RUNS_WIDTH)
    return [other for name in chosen if (other := situation.run_named(name)) is not None] or [run]


def _choose_lines(runs: list[Run]) -> tuple[Comparison, str]:
    """Draw the fields for text, methods, baseline and seeds. Raises MissingResultError if no run has a perplexity."""
    joined = figures.with_seeds(runs)
    rows = figures.measured_rows(joined)
    slot = st.container(width="content")
    with st.popover("Options", icon=":material/tune:", key="cp_filter"):
        measured = {row.method for row in rows}
        measured_names = {name: label(name) for name in ALL_METHODS if name in measured}
        methods = address.multiselect("Methods", measured_names, "cp_methods", (), placeholder="all methods")
        has_several_seeds = analysis.has_several_seeds(analysis.seed_groups({run.name: run.study for run in joined}))
        together = not has_several_seeds or address.toggle("Seeds together", "cp_seeds", True)
        runs = joined if together else runs
        rows = figures.measured_rows(runs)
        compared = figures.compare(runs, rows, methods, together=together)
        options, default = figures.baseline_options(compared.results, runs[0].study)
        names = {key: compared.names[result.name] for key, result in options.items()}
        pinned = address.selectbox("Baseline", names, "cp_pinned", default)
    compared = figures.compare(runs, rows, methods, together=together, pinned=pinned)
    texts = {text: f"{compared.text_name(text)} · {compared.relation_label(text)}" for text in compared.texts}
    with slot:
        text = address.segmented_control("Text", texts, "cp_text", compared.texts[0])
    return compared, text


def _introduce(runs: list[Run], compared: Comparison, text: str) -> str:
    """Return sentences on differing settings, the runs' leading models, and the text's relation to calibration."""
    sentences = []
    if len(runs) > 1:
        run_labels = labels(frame.situation().runs)
        sentences += [
            f"{run_labels[run.name]} has no perplexities yet." for run in runs if not derived_cache.measured_pairs(run)
        ]
        run_labels = labels(runs)
        differences = analysis.differences({run_labels[run.name]: run.study for run in runs})
        values = differences.drop(columns="meaning", errors="ignore").to_dict("records")
        lines = ["{}: {}".format(row.pop("setting"), " / ".join(row.values())) for row in values]
        sentences.append(f"Settings that differ: {'; '.join(lines)}." if lines else "The runs have equal settings.")
        sentences.append(compared.finding(text))
    status = compared.status(text)
    return " ".join(filter(None, (*sentences, f"{name_texts(status.sentence, runs[0].study)}." if status else "")))


def _show_table(content: Card, compared: Comparison, text: str) -> None:
    _show_verdict(content, compared, text)
    table = as_table(compared, text)
    tables.show(
        table,
        words={"change": lambda change: f"{format_signed(change, '.1f')}%"},
        height=tables.height(len(table)),
        column_config=_column_config(table, compared),
        placeholder="–",
        alt=f"perplexity of every method on {compared.text_name(text)}",
    )
    baseline, seeds = escape(compared.names[compared.baseline.name]), _has_seeds(compared)
    legend = f"{BEST} best, {SECOND} second-best pruned model; ties share a star. Change ± 95% interval against "
    signs = f"{baseline}: {', '.join(f'{sign} {verdict}' for verdict, sign in _SIGNS.items())}."
    st.caption(
        f"{legend}{signs}{' PPL is the arithmetic mean over seeds, s.d. the standard deviation.' if seeds else ''}"
    )
    if any(run.study.prunes_experts for run in compared.runs):
        st.caption(RETENTION_OF_EXPERTS)
    _show_notes(compared, text)
    content.set_printed_table(lambda: table)
    content.tools(
        lambda: analysis.long_table(compared.rows, compared.baseline.name, METHOD_LABELS),
        switch=False,
        how="Lower perplexity is better. The change and its 95% interval are paired over the same windows; if the "
        "interval contains 0, the methods are within noise. A row with another retention keeps more or fewer "
        "weights and does not compete. The CSV has every text.",
    )


def as_table(compared: Comparison, text: str) -> pd.DataFrame:
    """Return a table of the numbers on a text, one row per compared line, sorted by perplexity."""
    signs, marks, rows = stars(compared.ranking(text)), analysis.marks(compared.rows), []
    for result in compared.sorted_on(text):
        gap = figures.change_of(compared, result, text)
        difference = gap if isinstance(gap, Difference) and np.isfinite(gap.change) else None
        mark = marks.of(text, *result.stamps(text)) if result.by_seed(text) else ""
        cells: dict[str, Any] = {
            "": f"{signs.get(result.name, '')}{mark}",
            "method": escape_formula(compared.names[result.name]),
        }
        cells |= {"PPL ↓": result.mean(text), "s.d.": result.spread(text)}
        cells["change"] = 100 * difference.change if difference else np.nan
        cells["±"] = 100 * difference.margin if difference else np.nan
        is_judged = difference is not None and is_comparable(result, compared.baseline, text)
        cells["Δ"] = _SIGNS[difference.verdict] if difference and is_judged else ""
        cells |= {"retention": 100 * result.retention, "seeds": len(result.seeds)}
        rows.append(cells)
    table = pd.DataFrame(rows)
    return table if _has_seeds(compared) else table.drop(columns=["seeds", "s.d."])


def _has_seeds(compared: Comparison) -> bool:
    return any(len(result.seeds) > 1 for result in compared.results)


def _column_config(table: pd.DataFrame, compared: Comparison) -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    forms = {"retention": ("%.1f%%", 76), "PPL ↓": ("%.2f", 68), "s.d.": ("%.2f", 52), "±": ("%.1f%%", 54)}
    columns: dict[str, Any] = {name: number(format=form, width=width) for name, (form, width) in forms.items()}
    # 6 pixels per character
    method_width = min(20 + 6 * max(map(len, compared.names.values())), 240)
    columns |= {"": text(width=28), "change": number(width=70), "method": text(width=method_width), "Δ": text(width=28)}
    return columns | {"seeds": number(width=44)}


def _show_verdict(content: Card, compared: Comparison, text: str) -> None:
    """Show the windows and, if the comparison is fair, the best pruned model in the title of the card."""
    with st.container(horizontal=True, gap="xsmall"):
        st.badge(escape(compared.text_name(text)), color="grey")
        st.badge(compared.relation_label(text), color="green" if compared.relation_label(text) == "unseen" else "grey")
        for windows in sorted({row.cells[text].window_label for row in compared.rows if text in row.cells}):
            st.badge(windows, color="grey", help="Do not compare these with perplexities on other windows.")
        if len({run.study.seed for run in compared.runs}) == 1:
            st.badge("one seed", color="orange", help="No spread over seeds is known.")
    if missing := compared.missing:
        st.caption(f"Not measured yet: {escape(', '.join(map(label, missing)))}.")
    elif reasons := obstacles(compared.rows):
        st.warning("No winner: " + escape("; ".join(reasons)) + ".", icon=":material/balance:")
    elif best := winners(compared.ranking(text)):
        names = [compared.names[name] for name in best]
        verb = "have the lowest perplexity, within noise" if best[1:] else "has the lowest perplexity"
        content.set_title(escape(f"{join_words(names)} {verb} on {compared.text_name(text)}"))


def _show_notes(compared: Comparison, text: str) -> None:
    """Show a control as good as the leading method, the measurement protocols, and why cells are empty."""
    if control := _control_finding(compared, text):
        st.caption(f":orange[:material/science:] {escape(control)}.")
    marks = analysis.marks(compared.rows)
    tables.draw_stamps(marks.usual.values())
    if marks.footnotes:
        st.caption(f"{escape('; '.join(marks.footnotes))}.")
    baseline = escape(compared.names[compared.baseline.name])
    for (where, reason), methods in analysis.incomparable_methods(compared.results, compared.baseline).items():
        if where == text:
            names = escape(", ".join(dict.fromkeys(map(label, methods))))
            st.caption(f"{names}: no comparison with {baseline} ({escape_error(reason)}).")
    for reason in dict.fromkeys(result.reason for result in compared.results if result.reason):
        left_out = dict.fromkeys(label(result.method) for result in compared.results if result.reason == reason)
        st.caption(f"Left out: {escape('; '.join(left_out))} ({escape_error(reason)}).")


def _control_finding(compared: Comparison, text: str) -> str:
    """Return a sentence, without full stop, about a control as good as the leading method; empty if none is."""
    if compared.missing:
        return ""
    run_names = dict.fromkeys(result.name[0] for result in compared.results)
    by_run = ([result for result in compared.results if result.name[0] == name] for name in run_names)
    pairs = {run.name: leading_pair(run.study) for run in compared.runs}
    outcomes = (opponents(results, text, {}, *pairs[results[0].name[0]]) for results in by_run)
    finding = next((words for outcome in outcomes if (words := against_control(outcome))), "")
    return f"On {compared.text_name(text)}, {finding[:1].lower()}{finding[1:]}" if finding else ""


def _show_intervals(run: Run, compared: Comparison, text: str) -> None:
    forms = {"change": "Change", "perplexity": "Perplexity"}
    form = address.read_option("cp_form", forms, "change")
    figure = figures.perplexity if form == "perplexity" else figures.differences
    with card_of(figure, run) as content:
        address.segmented_control("Show", forms, "cp_form", "change", label_visibility="collapsed")
        try:
            panel = figure(run, text=text, **figures.options_of(run, compared), _compared=compared)
        except MethodError as reason:
            st.info(_sentence(reason), icon=":material/hourglass_empty:")
        else:
            content.show(panel, narrow=True)


def _sentence(error: Exception) -> str:
    """Return the message of an error as a sentence, escaped for Markdown."""
    message = escape_error(error)
    return f"{message[:1].upper()}{message[1:]}."


def _show_pareto(content: Card, run: Run, text: str) -> None:
    """Show the Pareto chart, and a link to the export of the cheapest model within the limit."""
    similar_runs = figures.similar_runs(run, frame.situation().runs)
    run_labels = labels(similar_runs)
    names = {other.name: run_choice.run_label(other, run_labels) for other in similar_runs}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        cost = address.segmented_control("Cost", COSTS, "dc_cost", PARAMETERS)
        most = address.number_field("Perplexity limit (× dense)", "dc_most", figures.LIMIT, 1.0, 20.0, 0.1, width=160)
        with st.popover("Runs of this model", icon=":material/filter_list:", key="dc_filter"):
            chosen = address.multiselect("Runs of this dense model", names, "dc_runs", list(names)) or list(names)
    compared = figures.similar_comparison(run, tuple(chosen))
    if text not in compared.texts:
        raise MissingResultError(f"the perplexity of these runs on {compared.text_name(text)}")
    runs = () if chosen == list(names) else tuple(chosen)
    panel = figures.trade_off(run, runs=runs, text=text, cost=cost, most=most, _compared=compared)
    content.show(panel)
    best = cheapest(figures.pareto_options(compared, text, cost), most)
    if best is not None:
        link_label = f"Export {escape(compared.names[best.line.name])}"
        address.link("export", link_label, ":material/download:", run=best.line.name[0])


def _show_method_inputs(run: Run, compared: Comparison) -> None:
    """Draw one of up to three views: inputs of the methods, candidates tried, recovery after pruning."""
    views = {_INPUTS: "Data and compute"}
    views |= {_CANDIDATES: figures.choice.heading} if run.study.chooses else {}
    views |= {_RECOVERY: figures.recovery.heading} if stages.recovers(run.study) else {}
    view = address.read_option(_INPUT_VIEW, views, _INPUTS)
    name = "Calibration data and compute per method"
    view_cards = {_INPUTS: card("cp_given", name, run), _CANDIDATES: card_of(figures.choice, run)}
    with view_cards.get(view) or card_of(figures.recovery, run) as content:
        if len(views) > 1:
            address.segmented_control("Show", views, _INPUT_VIEW, _INPUTS, label_visibility="collapsed")
        if view == _CANDIDATES:
            _show_choice(content, run)
        elif view == _RECOVERY:
            _show_recovery(content, run)
        else:
            _show_inputs(content, compared)


def _inputs_of(compared: Comparison) -> dict[tuple[str, str], MethodInputs]:
    """Return the texts and compute that each pruned line used; for a line of several seeds, those of its first run.

    Raises StoreError if a record of the learning is damaged.
    """
    runs = {run.name: run for run in compared.runs}
    inputs = {result.name: _load_inputs(runs[result.name[0]], result.method) for result in compared.results}
    return {name: inputs_used for name, inputs_used in inputs.items() if inputs_used is not None}


def _load_inputs(run: Run, method: str) -> MethodInputs | None:
    method_info = ALL_METHODS[method]
    if method_info.decision == "none" or not run.has(stages.masks, method_info.masks):
        return None
    # the keys include the repairs, in which methods with equal masks can differ
    keys = tuple(need.key for need in stages.every_need(stages.model_inputs(run.graph, method)))
    return _cached_inputs(run.root, keys, method, run.results)


@st.cache_data(max_entries=512, show_spinner=False)
def _cached_inputs(root: str, keys: tuple[str, ...], method: str, _results: Results) -> MethodInputs | None:
    return stages.method_inputs(_results, method)


def _show_inputs(content: Card, compared: Comparison) -> None:
    inputs = _inputs_of(compared)
    if not inputs:
        st.info("No method has been pruned yet.", icon=":material/hourglass_empty:")
        return
    table = inputs_table(compared, inputs)
    wide = {"method": st.column_config.TextColumn(width=190), "repair": st.column_config.TextColumn(width=160)}
    tables.show(table, column_config=wide, placeholder="–", alt="texts, passes and learning of every method")
    if any(inputs_used.attention for inputs_used in inputs.values()):
        st.caption(f":material/lock: {_CONTROL_NOTE}")
    content.tools(
        lambda: table,
        switch=False,
        caption="One pass runs the dense model over one calibration set. Controls are ablations, not competitors.",
        how="Texts: those that determine the masks. Repair: the change to the kept weights, and the texts that it is "
        "fitted to. Passes: all that a method’s decisions need, including those that several methods share. More "
        "texts, passes or learning can benefit a method.",
    )


def inputs_table(compared: Comparison, inputs: dict[tuple[str, str], MethodInputs]) -> pd.DataFrame:
    """Return a table of texts, passes, learning and repair by method; of key/value groups if a row uses GPrune's."""
    results: list[MethodResult] = [result for result in compared.results if result.name in inputs]
    studies = {run.name: run.study for run in compared.runs}
    return pd.DataFrame(
        [
            {
                "method": escape_formula(compared.names[result.name]),
                "texts": name_texts(join_words(inputs_used.texts), studies[result.name[0]]) or "none",
                "forward passes": inputs_used.forward,
                "backward passes": inputs_used.backward,
                "learning steps": inputs_used.steps,
                "key/value groups": "as GPrune" if inputs_used.attention else "by the method",
                "repair": name_texts(inputs_used.repaired_with, studies[result.name[0]]) or "none",
            }
            for result in results
            for inputs_used in [inputs[result.name]]
        ]
    ).drop(columns=[] if any(row.attention for row in inputs.values()) else ["key/value groups"])


def _show_choice(content: Card, run: Run) -> None:
    try:
        panel = figures.choice(run)
    except MethodError as reason:
        st.info(_sentence(reason), icon=":material/hourglass_empty:")
        return
    content.show(panel, switch=False)
    assert panel.table is not None
    table = panel.table()
    tables.show(
        table,
        forms={name: "%.4g" for name in table if table[name].dtype.kind == "f"},
        height=tables.height(min(len(table), _MOST_CANDIDATES)),
        alt="candidates with their numbers",
    )


def _show_recovery(content: Card, run: Run) -> None:
    texts = {model.text: short_text(run.study, model.text) for model in figures.find_recoveries(run)}
    text = next(iter(texts), "")
    if len(texts) > 1:
        text = address.segmented_control("Text", texts, "cp_recovery_text", text)
    panel = figures.recovery(run, text=text)
    content.show(panel)
    assert panel.table is not None
    table = panel.table()
    changes = zip(table.pop("change %"), table.pop("± %"), strict=True)
    table["change"] = [f"{format_signed(change, '.1f')} ± {error:.1f}%" for change, error in changes]
    table["text"] = [texts[text] for text in table["text"]]
    forms = {"before": "%.2f", "after recovery": "%.2f"}
    tables.show(table, forms=forms, alt="perplexities before and after recovery")
