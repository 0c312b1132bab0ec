"""Page *Experts*: scores, drift and masks of the experts of a mixture-of-experts model, and the pruned models."""

import streamlit as st

from gprune.analysis.formatting import format_signed, percent
from gprune.analysis.verdict import RETENTION_OF_EXPERTS
from gprune.app.figures import experts as figures
from gprune.app.ui import address, derived_cache, frame, tables
from gprune.app.ui.card import Card, card, card_of, panel_card
from gprune.app.ui.page_names import EXPERTS
from gprune.app.ui.text import name_texts
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run


@frame.declare_page(EXPERTS, "Which experts are removed, and does this depend on the calibration text?")
def show(run: Run) -> None:
    """Draw the page."""
    labels = figures.criterion_labels(run)
    criterion = address.segmented_control("Criterion", labels, "xp_criterion", next(iter(labels)))
    left, right = st.columns(2)
    with left, card_of(figures.expert_map, run) as content:
        quantities = {name: name_texts(title, run.study) for name, title in figures.QUANTITIES.items()}
        quantity = address.segmented_control("Colour", quantities, "xp_quantity", figures.DRIFT)
        content.show(figures.expert_map(run, criterion=criterion, quantity=quantity))
    with right, card_of(figures.adaptation, run) as content:
        content.show(figures.adaptation(run, criterion=criterion))
    panel_card(figures.removed_experts, run)
    panel_card(figures.text_dependence, run)
    with card("xp_perplexity", "Perplexity of every method", run) as content:
        _show_perplexity(run, content)


def _show_perplexity(run: Run, content: Card) -> None:
    if not run.study.evaluation.texts:
        st.caption("This study measures no perplexity.")
        return
    measurements = derived_cache.measurements(run)
    run.require(measurements, stages.perplexity, run.study.methods[0], run.study.evaluation.texts[0])
    table = figures.perplexity_table(run, measurements)
    sizes = [item.parameters for item in measurements]
    size = f"{min(sizes):,} of {max(sizes):,} parameters"
    content.set_title(f"Perplexity at {percent(min(table['retention']))} retention: {size}")
    texts = [run.study.text_name(text) for text in run.study.evaluation.texts]
    changes = [f"{text}{figures.CHANGE}" for text in texts if f"{text}{figures.CHANGE}" in table]
    content.table(
        table,
        forms={"retention": "percent"} | {text: "%.2f" for text in texts if text in table},
        words={change: lambda value: format_signed(value, ".1f") for change in changes},
        alt="perplexity of every method",
        caption="Change from the dense model in percent, with its 95% interval over windows.",
        how=f"{RETENTION_OF_EXPERTS} Attention, shared experts and dense layers are not changed. The title has the "
        "parameters of the whole model. All methods have the same windows.",
    )
    tables.draw_stamps(item.stamp for item in measurements)
    st.caption(f"`python -m gprune export {run.name} METHOD OUT` writes the model of any method as a folder.")
