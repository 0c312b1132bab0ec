"""The ideas of the method one by one, each in plain words and then on the run at hand."""

from collections.abc import Callable

import streamlit as st

from gprune.analysis.comparison import DENSE
from gprune.analysis.formatting import percent
from gprune.analysis.headline import OURS
from gprune.analysis.neurons import Example, standing
from gprune.analysis.paired_test import Measurement
from gprune.app.pages.help import panels
from gprune.app.ui import selection, story
from gprune.app.ui.card import Card
from gprune.app.ui.text import plain, short
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.study.methods import METHODS


def neuron(run: Run | None, drawn: Card) -> None:
    """One neuron with everything that happened to it."""
    st.markdown(
        "A feed-forward layer of a language model has many neurons. Pruning orders them by importance, "
        "measured while the model reads some text, and removes the last. On another text the order is "
        "another."
    )
    if run is None:
        return
    found = story.example_of(run, selection.current(run))
    left, right = st.columns([3, 2])
    with left:
        for sentence in biography(run, found):
            st.markdown(f"- {sentence}")
        if selection.current(run).neuron is None:
            st.caption(
                "It is among the neurons that move furthest beyond their noise. Select another on any page."
            )
    shown = panels.neuron(run, selected=selection.current(run))
    drawn.title(shown.title)
    with right:
        drawn.show(shown, on_point=selection.of_point)


def biography(run: Run, found: Example) -> list[str]:
    """What became of a neuron, a sentence a step."""
    a, b = plain(short(run.study.primary)), plain(short(run.study.auxiliary))
    drift = abs(found.first - found.second)
    far = "more than" if drift > found.floor else "no more than"
    told = [
        f"**Neuron {found.neuron} of layer {found.layer}** ranks {standing(found.first)} on A ({a}) and "
        f"{standing(found.second)} on B ({b}).",
        f"Its **drift** is d = {drift:.2f}: it moves over {_share(drift)} of the ranking. Between halves of "
        f"one text it moves over {_share(found.floor)}, so the other text moves it {far} noise does.",
    ]
    return told + _module(found) + _fate(found)


def _share(value: float) -> str:
    return percent(value, 1) if value < 0.1 else percent(value)


def _module(found: Example) -> list[str]:
    if found.module is None:
        return ["Its **module** is not known: this run has not sorted its neurons into modules."]
    told = [
        f"It belongs to **module {found.module}**, which has {found.size} neurons that are ranked together."
    ]
    if found.adapted is None:
        return told
    if not found.adapted:
        return [*told, "**RASA** leaves the module alone: its neurons keep their scores from A."]
    source = "B, on which its ranking repeats better" if found.from_auxiliary else "A, which repeats better"
    return [*told, f"**RASA** adapts the module: its neurons are scored from {source}."]


def _fate(found: Example) -> list[str]:
    names = {name: METHODS[name].label for name in found.kept}
    kept = [names[name] for name, keeps in found.kept.items() if keeps]
    lost = [names[name] for name, keeps in found.kept.items() if not keeps]
    if not found.kept:
        return ["Nothing has been pruned in this run yet."]
    if not lost:
        return [f"Every method **keeps** it: {', '.join(kept)}."]
    if not kept:
        return [f"Every method **removes** it: {', '.join(lost)}."]
    return [f"It is **kept** by {', '.join(kept)} and **removed** by {', '.join(lost)}."]


def _here(run: Run | None, tell: Callable[[Run], str]) -> None:
    """What this run has of an idea; says so where it has nothing yet."""
    if run is None:
        return
    try:
        st.info(plain(tell(run)), icon=":material/analytics:")
    except MissingResultError as missing:
        st.caption(f"On this run: “{plain(missing.title)}” is not there{'' if story.ended(run) else ' yet'}.")


def drift(run: Run | None, drawn: Card) -> None:
    """Rank drift and its floor."""
    st.markdown(
        "The **drift** of a neuron is how far its rank moves within the layer when the text changes, from 0 "
        "(not at all) to 1 (from the first place to the last). Measuring is noisy: even two halves of one "
        "text give different ranks. That is the **re-sampling floor**, and only drift above it is due to the "
        "text."
    )
    _here(run, story.drift_finding)


def modules(run: Run | None, drawn: Card) -> None:
    """BCM and its agreement."""
    st.markdown(
        "**Behavior-consistent modularization (BCM)** sorts the neurons of a layer into modules: alike in "
        "their weights and alike in their drift. Neurons then compete with their own kind only, so one that "
        "shouts on one text cannot crowd out those that work on all. **ARI** says how far two such groupings "
        "agree: 1 is identical, 0 is chance."
    )
    _here(run, story.agreement_finding)


def adaptation(run: Run | None, drawn: Card) -> None:
    """RASA."""
    st.markdown(
        "**Reliability-aware score adaptation (RASA)** looks for modules that drift much and score low on A: "
        "there the ranking rests on too weak a signal. Each takes its scores from the text, A or B, on which "
        "its own ranking changes less between halves (the smaller **u**)."
    )
    _here(run, story.adapted_finding)


def budget(run: Run | None, drawn: Card) -> None:
    """MSL, retention and Jaccard."""
    st.markdown(
        "**Modular sparsity learning (MSL)** gives every module a threshold of its own and learns all of "
        "them on both texts at once, so that the whole model meets one budget. **Retention** is the share "
        "that is kept; **Jaccard** is the share of jointly kept neurons among those that either of two "
        "methods keeps."
    )
    _here(run, story.budget_finding)
    other = story.rival(run) if run is not None else None
    if run is None or other is None or not run.has(stages.masks, OURS) or not run.has(stages.masks, other):
        return
    drawn.show(panels.kept_by_both(run))


def measures(run: Run | None, drawn: Card) -> None:
    """Perplexity and its error."""
    st.markdown(
        "**Perplexity** says how much a model is surprised by a text: at 40 it is as unsure of the next "
        "token as if it had to choose among 40 equally likely ones. Lower is better. All methods read the "
        "same windows, so the **difference** of two is known better than either; within two of its standard "
        "errors it is too close to call."
    )
    _here(run, _perplexity)


def _perplexity(run: Run) -> str:
    text, cells = story.on_unseen(run)
    told = [f"{METHODS[cell.method].label} {cell.perplexity:.1f}" for cell in _few(cells)]
    return f"Perplexity on {text} ({story.standings(run)[text].brief}): {', '.join(told)}."


def _few(cells: list[Measurement]) -> list[Measurement]:
    """The dense model first, then the pruned ones, the best first."""
    return sorted(cells, key=lambda cell: (cell.method != DENSE, cell.perplexity))


def limits(run: Run | None, drawn: Card) -> None:
    """What a single run cannot say."""
    st.markdown(
        "**What to be careful with.** One run has one seed, so it says nothing of the spread between seeds. "
        "The bundled model is small: it shows how things work, not how large models behave. Figures of the "
        "paper stand on other models, texts and windows, and are never ranked beside measured ones."
    )
    if run is not None:
        size = run.size
        many = f"{size.parameters:,} parameters" if size else "a model of unknown size"
        st.caption(f"This run: {many}, {run.study.calibration.samples} calibration sequences a text.")


IDEAS: tuple[tuple[str, str, Callable[[Run | None, Card], None]], ...] = (
    ("drift", "Drift, and the noise below it", drift),
    ("modules", "Modules (BCM) and their stability", modules),
    ("rasa", "RASA: which text scores a module", adaptation),
    ("budget", panels.kept_by_both.heading, budget),
    ("measures", "What it costs: perplexity", measures),
    ("care", "What one run cannot say", limits),
)
"""key, title, and what tells it"""
