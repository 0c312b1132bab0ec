"""Decide: which pruned model to take, for whoever has to choose one, and what to measure before."""

from typing import Any

import streamlit as st

from gprune.analysis.decision import COSTS, PARAMETERS, Price, cheapest, price_table, prices
from gprune.analysis.formatting import counted
from gprune.analysis.verdict import COST_DIGITS
from gprune.app.pages.comparison.lines import Shown
from gprune.app.pages.decision import panels
from gprune.app.ui import buttons, faults, frame, places, run_choice, tables, text_picker, url_state, work
from gprune.app.ui.card import Card, card, card_of
from gprune.app.ui.chart_style import label
from gprune.app.ui.run_choice import labels
from gprune.app.ui.text import plain
from gprune.experiments.sweep.plan import Sweep
from gprune.jobs.queue import MOST_OPEN
from gprune.pipeline.runs.opened import Run
from gprune.study import Study, profiles, short
from gprune.study.methods import METHODS, RECOMMENDED
from gprune.system.errors import SettingsError

_MOST = 20.0
_RETENTIONS = ("0.8", "0.7", "0.5", "0.3")
_WHY = (
    "With equal widths every layer keeps the same number of neurons and of key/value groups, and the saved "
    "folder is a stock model, which runtimes take without code of this project. A method that weighs layers "
    "against each other with free widths then ranks neurons within each layer."
)
_HOW = (
    "Perplexity with equal widths against the same method, texts and seeds with free ones, on the same "
    "windows. Equal widths keep at most the share that was asked for, in whole blocks of the alignment, so "
    "that a part of the change can be a lower retention: both are shown."
)


def show() -> None:
    """Draws the page."""
    frame.page_title("Decide", "Which pruned model to take: what does each lose, and what does it cost?")
    run = frame.require_run()
    if run is None:
        return
    compared: tuple[Shown, str] | None = None
    with card_of(panels.trade_off, run) as drawn:
        compared = _trade_off(drawn, run)
    with card("dc_recipe", "The recommended recipe", run):
        _recipe(run)
    with card("dc_widths", "What equal widths cost", run) as drawn:
        _equal_widths(drawn, run, compared)
    with card("dc_texts", "Compare calibration texts", run):
        _texts(run)


def _trade_off(drawn: Card, run: Run) -> tuple[Shown, str]:
    """Draws the figure; what it compares, and the text."""
    shown = panels.of_runs(run, tuple(_runs(run)))
    names = {text: f"{short(text)} ({shown.role(text)})" for text in shown.texts}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = url_state.selectbox("Perplexity on", names, "dc_text", shown.texts[0], width=320)
        cost = url_state.segmented("Cost", COSTS, "dc_cost", PARAMETERS)
        most = url_state.number_field("At most, times dense", "dc_most", panels.LIMIT, 1.0, _MOST, 0.1, width=160)
    asked: dict[str, Any] = {"text": text, "cost": cost, "most": most}
    made = panels.trade_off(run, runs=_named(run, shown), _shown=shown, **asked)
    drawn.show(made)
    if made.table is not None:
        table = made.table()
        forms = {name: f"%.{COST_DIGITS}f" for name in table if table[name].dtype.kind == "f"}
        tables.show(table, forms=forms, alt="every model with what it loses and costs")
        taken = cheapest(panels.options(shown, text, cost), most)
        if taken is not None:
            words = f"Export {plain(shown.names[taken.line.name])}"
            places.link("export", words, ":material/download:", run=taken.line.rows[0].run)
    return shown, text


def _named(run: Run, shown: Shown) -> tuple[str, ...]:
    """The runs as an option, where they are not those that stand there by themselves."""
    names = tuple(one.name for one in shown.runs)
    return () if names == tuple(one.name for one in panels.alike(run, frame.situation().runs)) else names


def _runs(run: Run) -> list[str]:
    """Asks for the runs; by itself all of the dense model."""
    every = panels.alike(run, frame.situation().runs)
    known = labels(every)
    names = {one.name: run_choice.run_label(one, known) for one in every}
    return url_state.multiselect("Runs of this dense model", names, "dc_runs", list(names)) or list(names)


def _recipe(run: Run) -> None:
    """What the recipe is, and the button that measures it on this model."""
    st.markdown(plain(profiles.recipe()))
    if RECOMMENDED in run.study.methods:
        st.caption("This run has measured it: it stands among the marks above.")
        return
    study = run.study.with_settings({"methods": [*run.study.methods, RECOMMENDED]})
    work.start_button("Measure it on this model", "dc_recipe_start", run.root, study)
    st.caption("What this run has computed is not computed again.")


def _texts(run: Run) -> None:
    """Asks for texts and retentions, and starts a study of each."""
    options = list(dict.fromkeys((run.study.primary, *text_picker.known(), *run.study.evaluation.texts)))
    names = {text: short(text) for text in options if text != run.study.auxiliary}
    st.caption(
        f"Each text in turn is A; B stays {plain(short(run.study.auxiliary))}. Every study is a run of its "
        "own and joins the figure above; what studies share is computed once."
    )
    left, right = st.columns(2)
    with left:
        texts = url_state.multiselect("Texts", names, "dc_texts", [run.study.primary])
    with right:
        kept = url_state.multiselect(
            "Retentions", {one: f"{100 * float(one):.0f} %" for one in _RETENTIONS}, "dc_kept", ["0.5"]
        )
    with faults.shown():
        studies = compared(run.study, texts, [float(one) for one in kept])
        words = f"Start {len(studies)} {'study' if len(studies) == 1 else 'studies'}"
        if buttons.pressed(words, key="dc_texts_start", icon=":material/play_arrow:"):
            if all(work.start(run.root, study) is not None for study in studies):
                st.rerun()


def compared(study: Study, texts: list[str], retentions: list[float]) -> list[Study]:
    """The studies of some texts as A at some retentions; SettingsError where there are none or too many."""
    if not texts or not retentions:
        raise SettingsError("choose at least one text and one retention")
    # a third text decides no mask, and could be one of these
    sweep = Sweep.parse(
        {
            "title": f"Texts of {short(study.model)}",
            "study": study.with_settings({"substitute": ""}).to_dict(),
            "space": {"primary": texts, "retention": retentions},
        }
    )
    if sweep.count > MOST_OPEN:
        raise SettingsError(f"that makes {sweep.count} studies, and the queue takes at most {MOST_OPEN}")
    return [one.study for one in sweep.variations()]


def _equal_widths(drawn: Card, run: Run, compared: tuple[Shown, str] | None) -> None:
    """What equal widths cost here, and the button that measures it, for the runs and text `compared`."""
    st.caption(_WHY)
    found: list[Price] = []
    if compared is not None:
        shown, text = compared
        found = prices(shown.lines, {one.name: one.study for one in shown.runs}, text)
    if found:
        drawn.title(_price_title(found, text))
        table = price_table(found, label, text)
        drawn.table(table, alt="perplexity with free and equal widths, by method", how=_HOW)
    study = equalled(run.study)
    if study is not None and all(run.name != price.free.rows[0].run for price in found):
        work.start_button("Measure equal widths on this model", "dc_widths_start", run.root, study)
        st.caption("What this run has computed and does not depend on widths is not computed again.")


def _price_title(found: list[Price], text: str) -> str:
    changes = [100 * price.difference.change for price in found]
    span = " to ".join(dict.fromkeys(f"{one(changes):+.0f}" for one in (min, max)))
    return plain(f"Equal widths change the perplexity of {counted(len(found), 'method')} on {short(text)} by {span} %")


def equalled(study: Study) -> Study | None:
    """The study with equal widths, without the methods that cannot have them; None where it has them."""
    methods = [name for name in study.methods if METHODS[name].levels]
    if study.sparsity.equal or not any(METHODS[name].decision != "none" for name in methods):
        return None
    return study.with_settings({"methods": methods, "sparsity.widths": "equal"})
