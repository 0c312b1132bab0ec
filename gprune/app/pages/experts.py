"""Page *Experts*: scores, drift and masks of the experts of a mixture-of-experts model, and the pruned models."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import calibration, inspection
from gprune.app import preview
from gprune.app.figures import experts as figures
from gprune.app.preview import DENSE, NO_DIFFERENCE, Answer, Question, Source
from gprune.app.ui import address, asking, frame, selection
from gprune.app.ui.card import Card, card, card_of, panel_card
from gprune.app.ui.chart_style import TEXT_LOOKS, label
from gprune.app.ui.components import draw_passages
from gprune.app.ui.contexts import context_passage, load_tokenizer
from gprune.app.ui.page_names import EXPERTS
from gprune.app.ui.text import escape, name_texts, text_names
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records.experts import STRONGEST
from gprune.records.repairs import ROUTER

_LAYER, _EXPERT, _MODEL, _LIVE = "xp_layer", "xp_expert", "xp_model", "xp_live"
"""address keys of the chosen expert, of the model that is changed, and of the live measurement"""
_WINDOW = 16
"""number of tokens on either side of a strongest token"""


@frame.declare_page(EXPERTS, "Which experts are removed, and does this depend on the calibration text?")
def show(run: Run) -> None:
    """Draw the page."""
    labels = figures.criterion_labels(run)
    criterion = address.segmented_control("Criterion", labels, "xp_criterion", next(iter(labels)))
    left, right = st.columns(2)
    with left, card_of(figures.expert_map, run) as content:
        quantities = {name: name_texts(title, run.study) for name, title in figures.QUANTITIES.items()}
        quantity = address.segmented_control("Colour", quantities, "xp_quantity", figures.DRIFT)
        chosen = [
            address.read_option(key, options, default) for _, options, key, default in _expert_fields(run, criterion)
        ]
        content.show(
            figures.expert_map(run, criterion=criterion, quantity=quantity, _chosen=(chosen[0], chosen[1])),
            on_point=_choose_expert,
        )
    with right, card_of(figures.adaptation, run) as content:
        content.show(figures.adaptation(run, criterion=criterion))
    with card("xp_expert", "Chosen expert", run) as content:
        _show_expert(run, content, criterion)
    panel_card(figures.removed_experts, run)
    panel_card(figures.text_dependence, run)


# --- the chosen expert


def _expert_fields(run: Run, criterion: str) -> list[tuple[str, list[str], str, str]]:
    """Return label, options, address key and default of the two fields that choose an expert."""
    layer, expert = figures.most_drifting_expert(run, criterion)
    experts = [str(index) for index in range(run.load(stages.expert_shape).experts)]
    return [("Layer", figures.list_layers(run), _LAYER, layer), ("Expert", experts, _EXPERT, expert)]


def _choose_expert(point: dict[str, Any]) -> None:
    layer, expert = (str(int(value)) for value in selection.custom_data(point)[:2])
    address.set_values({_LAYER: layer, _EXPERT: expert})


def _show_expert(run: Run, content: Card, criterion: str) -> None:
    """Draw the perplexity with the decision on the chosen expert reversed, and the expert's strongest tokens."""
    texts, layers = run.study.evaluation.texts, figures.list_layers(run)
    masks = {name: run.load(stages.expert_masks, name) for name in run.masks_of if run.has(stages.expert_masks, name)}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer, expert = (address.selectbox(*field, width=110) for field in _expert_fields(run, criterion))
        methods = {DENSE: "dense model"} | {name: label(name) for name in masks}
        method = address.selectbox("Model", methods, _MODEL, DENSE, width=260)
        is_asked = bool(texts) and address.toggle("Live", _LIVE, asking.is_live_by_default(run, texts))
    unit = layers.index(layer), int(expert)
    is_kept = method == DENSE or masks[method].experts[unit]
    subject = f"{'Without' if is_kept else 'With'} expert {expert} of layer {layer}"
    content.set_title(subject)
    if asking.can_ask(run, is_asked):
        _show_cost(run, content, Question("", method, fitted=False, expert=unit), subject, methods[method])
    elif texts:
        st.caption("Switch on “Live” to measure the perplexity of this model.")
    _show_tokens(run, content, unit)


def _show_cost(run: Run, content: Card, question: Question, subject: str, reference: str) -> None:
    """Draw the live perplexity of a question on every text against the model without the change."""
    names = {text: run.study.text_name(text) for text in run.study.evaluation.texts}
    source = Source(run.root, run.graph)
    identities = {
        text: preview.pool().ask(
            source,
            replace(question, text=text),
            asking.owner(f"expert {text}"),
            replace(question, text=text, expert=None),
        )
        for text in names
    }

    def draw(refining: bool) -> None:
        answers = {name: preview.pool().latest(identities[text]) for text, name in names.items()}
        for column, (name, answer) in zip(st.columns(len(answers)), answers.items(), strict=True):
            with column:
                asking.draw_paired(name, answer, escape(reference), f"perplexity on {escape(name)}")
        if refining:
            asking.draw_worker_state(run, "Measuring.")
        elif not any(answer is None or answer.problem for answer in answers.values()):
            content.set_title(f"{subject}: {_describe_cost(answers)}")

    asking.draw_until_complete(lambda: asking.is_refining(identities.values()), draw)
    if run.study.repair.kind == ROUTER:
        st.caption("Both models have the routers of the dense model, not the refitted ones.")


def _describe_cost(answers: Mapping[str, Answer | None]) -> str:
    """Return the largest measurable change of perplexity with its text; the answers are by the name of their text."""
    changes = [
        (abs(difference.change), f"{answer.verdict} on {escape(name)}")
        for name, answer in answers.items()
        if answer is not None and (difference := answer.difference) is not None and not difference.close
    ]
    return max(changes)[1] if changes else f"{NO_DIFFERENCE} on any text"


def _show_tokens(run: Run, content: Card, unit: tuple[int, int]) -> None:
    """Draw the strongest tokens of an expert on both texts. Raises ModelError without a tokenizer."""
    names = text_names(run.study)
    roles = {calibration.ROLES[role]: role for role in stages.PAIR if run.has(stages.tokens, role)}
    if missing := ", ".join(escape(names[letter]) for letter in "AB" if letter not in roles):
        text = f"The strongest tokens on {missing} are not shown, because the calibration tokens are not available."
        st.info(text, icon=":material/inventory_2:")
    tokens = {
        letter: inspection.strongest_of_expert(
            run.load(stages.expert_statistics, role), run.load(stages.tokens, role), *unit, _WINDOW
        )
        for letter, role in roles.items()
    }
    if not any(tokens.values()):
        return
    peak = max(item.value for items in tokens.values() for item in items)
    tokenizer = load_tokenizer(run.study.model, run.graph.inputs.tokenizer)
    passages = {
        letter: [replace(context_passage(tokenizer, item, peak), value=f"{item.value:#.3g}") for item in items]
        for letter, items in tokens.items()
    }
    for column, (letter, items) in zip(st.columns(len(passages)), passages.items(), strict=True):
        with column:
            st.markdown(f"**{escape(names[letter])}**")
            alt = f"strongest tokens on {names[letter]}"
            draw_passages(items, TEXT_LOOKS[letter][0], alt, f"{content.key}_{letter}")
    rows = [
        {"text": names[letter], "sequence": item.sequence, "position": item.position, "token": passage.token,
         "g·‖f(x)‖": item.value}
        for letter in tokens
        for item, passage in zip(tokens[letter], passages[letter], strict=True)
    ]  # fmt: skip
    content.tools(
        lambda: pd.DataFrame(rows),
        switch=False,
        caption="The tokens to which the expert adds most, with g·‖f(x)‖ on the left.",
        how="g is the router’s weight of a token, and ‖f(x)‖ the norm of the expert’s output. The card shows the "
        f"{STRONGEST} tokens of a text with the largest product. For the perplexity, the router’s logit of a removed "
        "expert is −∞, which equals the model without it. Differences are paired over windows.",
    )
