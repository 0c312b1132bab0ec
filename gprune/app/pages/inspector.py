"""The Inspector tab: one neuron, module or layer on each text, and the examples that activate it most."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import calibration, inspection, token_loss
from gprune.analysis.calibration_report.measuring import texts_of
from gprune.analysis.formatting import format_count, format_signed, percent
from gprune.analysis.inspection import Activation, LayerRanks
from gprune.analysis.thresholds import OUTCOMES, UNCHANGED
from gprune.app import preview
from gprune.app.figures import neurons as figures
from gprune.app.ui import address, asking, components, frame, run_status, selection, tables, work
from gprune.app.ui import card as cards
from gprune.app.ui.chart_style import TEXT_LOOKS, control_label
from gprune.app.ui.commands import command
from gprune.app.ui.components import ContextPassage, Token, draw_passages
from gprune.app.ui.contexts import context_passage, load_tokenizer
from gprune.app.ui.panel import Selection, available_part, module_labels
from gprune.app.ui.text import escape, escape_error, name_texts, text_names
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array
from gprune.system.errors import GpruneError

_LIVE, _ABLATED = "ins_every_token", "ins_ablated"
"""address keys: whether the worker may run the model, and the ablated neuron as `layer-neuron`"""
_WINDOW = 16
"""default number of tokens on either side of an example"""
_MOST_MEMBERS = 2000
"""maximum number of rows of a table of modules or neurons"""


@frame.declare_page("Inspector", "What is this neuron, module or layer, and what activates it most?")
def show(run: Run) -> None:
    """Draw the page."""
    try:
        selected = selection.current_selection(run)
        unit = selected or figures.most_drifting_neuron(run)
        live = _show_controls(run, unit)
    except GpruneError as error:
        # without the sizes of the model, or with damaged modules, there is no unit
        st.error(escape_error(error), icon=":material/error:")
        return
    if not selected:
        default_note = " Showing the one with the highest drift." if unit else ""
        st.info(
            f"No neuron selected.{default_note} Search (L5N688) or click any point to change it.",
            icon=":material/ads_click:",
        )
    if unit:
        with cards.card("ins_unit", unit.words, run) as card:
            show_unit = _show_group if unit.neuron is None else _show_neuron
            show_unit(run, card, unit)
    if unit.neuron is not None:
        _explain_neuron(run, unit, live)


def _explain_neuron(run: Run, unit: Selection, live: bool) -> None:
    left, right = st.columns([2, 3])
    with left, cards.card("ins_promoted", f"Which tokens does {unit.words} promote?", run) as card:
        _show_promoted_tokens(run, card, unit, live)
    with right, cards.card("ins_ablation", f"What does the model lose without {unit.words}?", run) as card:
        _show_ablation(run, card, unit)
    with cards.card("ins_fires", f"Top-activating examples of {unit.words}", run) as card:
        examples, histogram = st.container(), st.container()
        with histogram:
            _show_activations(run, card, unit, live)
        with examples:
            _show_examples(run, card, unit, live)


# --- the unit


def _show_controls(run: Run, unit: Selection) -> bool:
    """Draw the search field, the buttons to the neighbouring units and a switch; return True if the model can run."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="ins_steering"):
        selection.search_field(run, "ins_search", placeholder="L5N688 or module 3 of layer 2", width=320)
        for label, step, icon, key in (("Previous", -1, "chevron_left", "B"), ("Next", 1, "chevron_right", "N")):
            neighbour = _neighbour(run, unit, step)
            components.action_button(
                label, f"ins_{label.lower()}", icon, selection.select, *_unit_parts(neighbour or Selection()),
                shortcut=key, disabled=neighbour is None, help="Previous or next unit in the layer",
            )  # fmt: skip
        ask = address.toggle(
            "Ask the model",
            _LIVE,
            asking.is_live_by_default(run),
            help="The model runs locally to colour every token, count all activations and list the tokens that the "
            "neuron promotes. Nothing leaves this machine.",
        )
    return asking.can_ask(run, ask)


def _unit_parts(unit: Selection) -> tuple[int | None, int | None, int | None]:
    return unit.layer, unit.module, unit.neuron


def _neighbour(run: Run, unit: Selection, step: int) -> Selection | None:
    """Return the previous or next unit of the same kind; None at the ends or without a selection."""
    if unit.layer is None or run.shape is None:
        return None
    if unit.neuron is not None:
        neighbour = Selection(unit.layer, None, unit.neuron + step)
    elif unit.module is not None:
        neighbour = Selection(unit.layer, unit.module + step)
    else:
        neighbour = Selection(unit.layer + step)
    if min(value for value in _unit_parts(neighbour) if value is not None) < 0:
        return None
    neighbour, missing = available_part(run, neighbour)
    return None if missing else neighbour


def _show_group(run: Run, card: cards.Card, unit: Selection) -> None:
    """Draw the card of a module, or of a layer. Raises MissingResultError if the run has no scores yet."""
    panel = figures.score_histograms(run, layer=unit.layer, module=unit.module)
    members, modules = figures.members_of(run, unit)
    card.set_title(panel.title)
    _show_group_numbers(run, unit, members, modules)
    card.show(panel)
    if unit.module is None and modules is not None:
        name, table = "modules", modules
    else:
        name, table = "members", figures.members_table(run, unit, members)
    selection.draw_table(table.head(_MOST_MEMBERS), f"{card.key}_{name}", height=360, alt=f"the {name} of {unit.words}")
    note = ""
    if len(table) > _MOST_MEMBERS:
        note = f" {_MOST_MEMBERS:,} of {len(table):,} shown, sorted by importance; the CSV has all."
    st.caption(
        "Select a row to inspect it. u is the shift of local ranks between halves of a text; smaller is better." + note
    )


def _show_group_numbers(run: Run, unit: Selection, members: Array, modules: pd.DataFrame | None) -> None:
    """Draw drift, repeatability and adaptation of a module, or their means over the modules of a layer."""
    numbers: dict[str, str] = {}
    if run.has(stages.drift):
        numbers["Median rank drift"] = f"{np.median(run.load(stages.drift).magnitude[unit.layer][members]):.3f}"
    if modules is not None and "u on A" in modules:
        suffix = "" if unit.module is not None else ", mean of modules"
        for column in ("u on A", "u on B"):
            numbers[name_texts(column, run.study) + suffix] = f"{modules[column].mean():.3f}"
    if modules is not None and "RASA" in modules and unit.module is None:
        adapted = int((modules["RASA"] != OUTCOMES[UNCHANGED]).sum())
        numbers["Adapted modules"] = f"{adapted} of {len(modules)}"
    for name, mask in figures.kept_neurons(run, unit.layer or 0).items():
        numbers[f"{name} keeps"] = f"{100 * float(np.mean(mask[members])):.1f}%"
    with st.container(horizontal=True):
        for name, value in numbers.items():
            st.metric(name, value, border=True, width="content")


def _show_neuron(run: Run, card: cards.Card, unit: Selection) -> None:
    layer, neuron = unit.layer or 0, unit.neuron or 0
    texts = figures.layer_ranks(run, layer)
    panel = figures.neuron_ranks(run, layer=layer, neuron=neuron)
    card.set_title(panel.title)
    labels = module_labels(run, layer)
    _show_neuron_numbers(run, texts, layer, neuron, labels)
    if labels is not None:
        components.action_button(
            f"Inspect module {labels[neuron]}", f"ins_to_module_{layer}_{neuron}", "arrow_upward",
            selection.select, layer, int(labels[neuron]), type="tertiary",
        )  # fmt: skip
    _show_methods(run, layer, neuron)
    card.show(panel)


def _show_neuron_numbers(
    run: Run, texts: Mapping[str, LayerRanks], layer: int, neuron: int, labels: Array | None
) -> None:
    with st.container(horizontal=True):
        for letter, ranks in texts.items():
            label = name_texts(f"Score on {letter}", run.study)
            st.metric(label, f"{ranks.score[neuron]:.3g}", border=True, width="content")
        if run.has(stages.drift):
            drift = np.asarray(run.load(stages.drift).magnitude[layer])
            share = inspection.percentile(float(drift[neuron]), drift)
            note = f"Higher than for {percent(share, 1)} of the neurons in its layer"
            if labels is not None:
                inside = inspection.percentile(float(drift[neuron]), drift[labels == labels[neuron]])
                note += f", {percent(inside, 1)} in its module"
            st.metric("Rank drift", f"{drift[neuron]:.3f}", border=True, width="content")
            st.metric("Drift percentile", f"{100 * share:.1f}", border=True, width="content", help=note + ".")
        if labels is not None:
            size = int((labels == labels[neuron]).sum())
            st.metric("Module", f"{labels[neuron]} ({format_count(size, 'neuron')})", border=True,
                      width="content", help="Its module within the layer.")  # fmt: skip


def _show_methods(run: Run, layer: int, neuron: int) -> None:
    """Draw one badge per method, which says whether the method keeps the neuron."""
    masks = run.masks()
    if not masks:
        return
    with st.container(horizontal=True, gap="xsmall"):
        for name, mask in masks.items():
            is_kept = bool(mask.ffn[layer, neuron])
            scales = run.find(stages.scales, name) if is_kept and run.study.repair.scaled else None
            scale = f", scale {scales.ffn[layer, neuron]:.3f}" if scales is not None else ""
            st.badge(
                escape(f"{control_label(name)}: {'kept' if is_kept else 'removed'}{scale}"),
                icon=":material/check:" if is_kept else ":material/close:",
                color="green" if is_kept else "grey",
            )


# --- answers of the worker


def _ask_worker(
    run: Run,
    requests: Mapping[str, preview.TokenQuestion],
    key: str,
    draw: Callable[[dict[str, preview.TokenAnswer], bool], None],
) -> None:
    """Send named requests to the worker, and draw its answers until they are complete.

    `draw` receives the answers by name, and True if some are still incomplete; `key` is the key of the card. Raises
    StoreError if the run lacks a result that a request needs.
    """
    source = preview.Source(run.root, run.graph)
    identities = {
        name: preview.pool().read(source, request, [preview.Question("", preview.DENSE)], asking.owner(f"{key} {name}"))
        for name, request in requests.items()
    }

    def draw_answers(refining: bool) -> None:
        readings = {name: preview.pool().reading(identity) for name, identity in identities.items()}
        arrived = {name: reading for name, reading in readings.items() if reading is not None}
        for problem in dict.fromkeys(reading.problem for reading in arrived.values() if reading.problem):
            st.error(escape_error(problem), icon=":material/error:")
        answers = {name: reading.answers[0] for name, reading in arrived.items()}
        draw({name: answer for name, answer in answers.items() if answer is not None}, refining)
        if refining:
            asking.draw_worker_state(run, "Waiting for the worker.")

    asking.draw_until_complete(lambda: asking.is_reading(identities.values()), draw_answers)


def _texts_with_tokens(run: Run) -> dict[str, str]:
    """Return the roles of the calibration texts with tokens, by letter. Raises MissingResultError if there are none."""
    roles = [role for role in texts_of(run.study) if run.has(stages.tokens, role)]
    return run.require({calibration.ROLES[role]: role for role in roles}, stages.tokens)


def _show_activations(run: Run, card: cards.Card, unit: Selection, live: bool) -> None:
    if not live:
        return
    roles, names = _texts_with_tokens(run), {letter: escape(name) for letter, name in text_names(run.study).items()}
    requests = {letter: preview.Neuron(unit.layer or 0, unit.neuron or 0, role) for letter, role in roles.items()}

    def draw(answers: dict[str, preview.TokenAnswer], refining: bool) -> None:
        counts = {letter: answer for letter, answer in answers.items() if isinstance(answer, preview.TextActivations)}
        progress = ", ".join(f"{names[letter]} {item.sequences:,} of {item.total:,}" for letter, item in counts.items())
        if refining or len(counts) < len(requests):
            st.caption(f"Sequences read: {progress}" if counts else "No sequences read yet.")
            return
        values = {letter: item.values for letter, item in counts.items()}
        card.show(figures.activation_panel(run, values, f"Sequences read: {progress}"))

    _ask_worker(run, requests, card.key, draw)


def _show_promoted_tokens(run: Run, card: cards.Card, unit: Selection, live: bool) -> None:
    if not live:
        st.caption("Switch on “Ask the model” above to see the tokens that the neuron promotes and suppresses.")
        return
    request = preview.Neuron(unit.layer or 0, unit.neuron or 0)
    _ask_worker(run, {"direction": request}, card.key, partial(_draw_promoted_tokens, card))


def _draw_promoted_tokens(card: cards.Card, answers: dict[str, preview.TokenAnswer], refining: bool) -> None:
    answer = answers.get("direction")
    if not isinstance(answer, preview.PromotedTokens):
        return
    sides = {"promotes": answer.promoted, "suppresses": answer.suppressed}
    firsts = [f"{verb} “{token_loss.visible(side[0][0])}”" for verb, side in sides.items() if side]
    card.set_title(escape("It " + " and ".join(firsts)))
    for column, (verb, side) in zip(st.columns(2), sides.items(), strict=True):
        rows = [(token_loss.visible(token), format_signed(logit, ".3f")) for token, logit in side]
        with column:
            table = pd.DataFrame(rows, columns=[verb, "logit"])
            tables.show(table, alt=f"the tokens that the neuron {verb} most", height="content")
    card.tools(
        lambda: pd.DataFrame([*answer.promoted, *reversed(answer.suppressed)], columns=["token", "logit"]),
        switch=False,
        caption="Logits that an activation of 1 adds on the direct path: unembedding × scale of the final norm × the "
        "neuron's column of down_proj. This approximation ignores later layers and the data-dependent "
        "divisor of the final norm. A negative activation swaps the sides.",
        how="When the neuron is active, tokens on the left become more likely as the next token and those on the "
        "right less likely. Tokens of one kind suggest what the neuron does; a mixed list suggests that later "
        "layers decide.",
    )


def _show_ablation(run: Run, card: cards.Card, unit: Selection) -> None:
    """Draw the card of the ablation. Raises MissingResultError if the run has no tokens of a text yet."""
    roles, neuron = _texts_with_tokens(run), f"{unit.layer}-{unit.neuron}"
    texts = escape(name_texts(", ".join(roles), run.study))
    is_asked = address.read_text(_ABLATED) == neuron
    if not is_asked:
        with st.container(horizontal=True, vertical_alignment="center"):
            components.action_button(
                "Ablate now", f"{card.key}_now", "content_cut", address.set_value, _ABLATED, neuron
            )
            st.caption(f"The worker sets this neuron to 0 and measures the change of loss on {texts}.", width="stretch")
    if not asking.can_ask(run, is_asked):
        return
    source, silenced = preview.Source(run.root, run.graph), (unit.layer or 0, unit.neuron or 0)
    identities = {
        letter: preview.pool().ask(
            source,
            preview.Question("", preview.DENSE, role=role, neuron=silenced),
            asking.owner(f"{card.key} {letter}"),
        )
        for letter, role in roles.items()
    }
    draw = partial(_draw_ablation, run, card, identities, text_names(run.study))
    asking.draw_until_complete(lambda: asking.is_refining(identities.values()), draw)


def _draw_ablation(
    run: Run, card: cards.Card, identities: Mapping[str, str], names: Mapping[str, str], refining: bool
) -> None:
    latest = {letter: preview.pool().latest(identity) for letter, identity in identities.items()}
    answers = {names[letter]: answer for letter, answer in latest.items() if answer is not None}
    for problem in dict.fromkeys(answer.problem for answer in answers.values() if answer.problem):
        st.error(escape_error(problem), icon=":material/error:")
    for name, answer in answers.items():
        _show_loss_change(escape(name), answer)
    table = _loss_table(answers)
    if not refining and len(table):
        card.set_title(_loss_title(table))
    card.tools(
        lambda: table,
        switch=False,
        caption="Change of the dense model's loss when this neuron's input to down_proj is 0, on the run's "
        "calibration sequences. ± is the paired 95% interval over them; nothing else changes.",
        how="Above 0, the model predicts worse without the neuron; below 0, better. A change whose 95% interval "
        "contains 0 is within noise.",
    )
    if refining:
        asking.draw_worker_state(run, "Waiting for the worker.")


def _show_loss_change(text: str, answer: preview.Answer) -> None:
    change = answer.difference
    windows = f"{answer.done:,} of {answer.windows:,} windows" if answer.windows else "no window measured yet"
    value = "–"
    if change is not None:
        margin = f"{change.nats_margin:.5f}" if np.isfinite(change.nats_margin) else "unknown"
        text, value = f"{text}, nats/token", f"{format_signed(change.nats, '.5f')} ± {margin}"
    st.metric(text, value, windows, delta_color="off", delta_arrow="off")


def _loss_table(answers: Mapping[str, preview.Answer]) -> pd.DataFrame:
    """Return one row per text that has measured windows."""
    rows = [
        {
            "text": text,
            "change of loss (nats/token)": change.nats,
            "standard error": change.nats_error,
            "± (95% interval)": change.nats_margin,
            "windows": answer.done,
            "of": answer.windows,
            "measurable": not change.close,
        }
        for text, answer in answers.items()
        if (change := answer.difference) is not None
    ]
    return pd.DataFrame(rows)


def _loss_title(table: pd.DataFrame) -> str:
    measurable = table[table["measurable"].astype(bool)]
    if not len(measurable):
        return "Without it, the loss does not change measurably on any text"
    largest = measurable.loc[measurable["change of loss (nats/token)"].abs().idxmax()]
    change, margin = format_signed(largest["change of loss (nats/token)"], ".5f"), largest["± (95% interval)"]
    return f"Without it, the loss changes most on {escape(largest['text'])}: {change} ± {margin:.5f} nats/token"


# --- top-activating examples


def _show_examples(run: Run, card: cards.Card, unit: Selection, live: bool) -> None:
    """Draw the top-activating examples of a neuron; if `live`, the worker colours every token.

    Raises ModelError without a tokenizer, StoreError if a result is damaged.
    """
    roles = {calibration.ROLES[role]: role for role in texts_of(run.study)}
    names = {letter: escape(name) for letter, name in text_names(run.study).items()}
    recorded = {letter: role for letter, role in roles.items() if run.has(stages.positions, role)}
    readable = {letter: role for letter, role in recorded.items() if run.has(stages.tokens, role)}
    if readable:
        _show_passages(run, card, unit, readable, live)
    if unreadable := ", ".join(names[letter] for letter in recorded if letter not in readable):
        text = f"The tokens of {unreadable} are not available, so its examples have no text."
        st.info(text, icon=":material/inventory_2:")
    if missing := ", ".join(names[letter] for letter in roles if letter not in recorded):
        _offer_examples(run, missing, card.key)


def _show_passages(run: Run, card: cards.Card, unit: Selection, roles: dict[str, str], live: bool) -> None:
    layer, neuron, names = unit.layer or 0, unit.neuron or 0, text_names(run.study)
    window = int(address.slider("Tokens on either side", "ins_window", _WINDOW, 4, 48, 4, width=240))
    positions = {
        letter: inspection.strongest(
            run.load(stages.positions, role), run.load(stages.tokens, role), layer, neuron, window
        )
        for letter, role in roles.items()
    }
    peaks = {letter: max((item.value for item in items), key=abs, default=0.0) for letter, items in positions.items()}
    top = max(peaks, key=lambda letter: abs(peaks[letter]))
    peak, subject = abs(peaks[top]), f"Neuron {neuron} of layer {layer}"
    value = format_signed(peaks[top], ".3g") if peaks[top] < 0 else f"{peaks[top]:.3g}"
    predicate = escape(name_texts(f"activates most on {top}", run.study))
    card.set_title(f"{subject} {predicate}: {value}" if peak else f"{subject} is never active")
    tokenizer = load_tokenizer(run.study.model, run.graph.inputs.tokenizer)
    peaks_only = {
        letter: [context_passage(tokenizer, item, peak) for item in items] for letter, items in positions.items()
    }

    def draw(answers: dict[str, preview.TokenAnswer], refining: bool) -> None:
        for column, (letter, passages) in zip(st.columns(len(roles)), peaks_only.items(), strict=True):
            answer = answers.get(letter)
            if isinstance(answer, preview.PassageActivations):
                passages = color_passages(passages, positions[letter], answer, peak)
            with column:
                st.markdown(f"**{escape(names[letter])}**")
                alt = f"top-activating examples on {names[letter]}"
                draw_passages(passages, TEXT_LOOKS[letter][0], alt, f"{card.key}_{letter}")
        st.caption(
            "Tokens are coloured by their activation before down_proj in the dense model; deeper is stronger, "
            "underlined is negative. Bold marks the strongest token of its sequence, with its activation on the "
            "left."
            if live
            else "The strongest token of each sequence, with its activation before down_proj on the left; deeper is "
            "stronger, underlined is negative. “Ask the model” adds the activations of all tokens and their "
            "histogram on each text."
        )

    if not live:
        draw({}, False)
        return
    requests = {
        letter: preview.Neuron(layer, neuron, roles[letter], tuple(map(_token_range, items)))
        for letter, items in positions.items()
    }
    _ask_worker(run, requests, card.key, draw)


def _token_range(position: Activation) -> tuple[int, int, int]:
    """Return the index of a passage's sequence, and the positions of its first and last token in the sequence."""
    first = position.position - position.at
    return position.sequence, first, first + len(position.ids) - 1


def color_passages(
    passages: Sequence[ContextPassage], positions: Sequence[Activation], answer: preview.PassageActivations, peak: float
) -> list[ContextPassage]:
    """Return passages with all their tokens coloured; `peak` is the activation that has the full colour."""
    return [
        replace(passage, tokens=tuple(color_tokens(*tokens, position.at, peak)))
        for passage, position, tokens in zip(passages, positions, answer.passages, strict=True)
    ]


def color_tokens(pieces: Sequence[preview.Piece], values: Array, at: int, peak: float) -> list[Token]:
    """Return coloured tokens; tokens that share one character are joined and have their strongest activation.

    `at` is the index of the strongest token of the passage, `peak` the activation with the full colour.
    """
    tokens, start = list[Token](), 0
    while start < len(pieces):
        end = start + max(pieces[start].count, 1)
        value = float(max(values[start:end], key=abs))
        strength = min(abs(value) / peak, 1.0) if peak else 0.0
        tokens.append(Token(pieces[start].text, f"{value:+.3g}", strength, value < 0, start <= at < end))
        start = end
    return tokens


def _offer_examples(run: Run, texts: str, key: str) -> None:
    """Show why positions are missing, and offer the job that computes them."""
    if not run.study.calibration.positions:
        st.info(
            "This study records no positions (calibration.positions is 0). Start a study that records some on the "
            "Runs & export page.",
            icon=":material/info:",
        )
        return
    if run_status.is_live(run):
        st.info(f"The top-activating examples on {texts} are not computed yet.", icon=":material/hourglass_top:")
        return
    if run.packed and (reason := run_status.missing_inputs(run)):
        pack = "The pack of this run contains no top-activating examples. Ask for a pack made with --with-contexts."
        st.info(f"{pack} {escape_error(reason)}", icon=":material/inventory_2:")
        return
    st.info(
        f"This run did not record the top-activating examples on {texts}. Start it again to compute them with one "
        "pass over each text; nothing else changes.",
        icon=":material/info:",
    )
    until = ("--until", str(run.record.get("until") or "all"))
    with st.container(horizontal=True, vertical_alignment="center"):
        clicked = components.button("Compute examples", key=f"{key}_make", icon=":material/play_arrow:", type="primary")
        st.code(command(run.study, arguments=until), language="bash", wrap_lines=True)
    if clicked and work.start(run.root, run.study, until) is not None:
        st.rerun()
