"""What visibly moves a model: how much is kept, whose scores decide, and by which method."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from gprune import whatif
from gprune.analysis import decisions, flips
from gprune.analysis.signs import percent
from gprune.methods import METHODS
from gprune.records import PruningMasks
from gprune.study import ReliabilitySettings
from gprune.views.frame import address
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import label
from gprune.views.frame.loaders import Run
from gprune.views.frame.text import plain
from gprune.views.reliability import lab
from gprune.views.reliability import whatif_charts as figures
from gprune.views.reliability.changes_card import NOT_LEARNED

KEEP, TEXT, METHOD = "rasa_keep", "rasa_text", "rasa_method"
LEAST, MOST = 0.05, 0.98
DECIDED = "Decided from scores that are there."


def choice(run: Run, settings: ReliabilitySettings) -> whatif.LabChoice:
    """What was chosen, from the address."""
    return whatif.LabChoice(
        address.choice(METHOD, methods(run), "gprune"),
        address.number(KEEP, run.study.retention, LEAST, MOST),
        address.choice(TEXT, texts(run), whatif.ADAPTED),
        settings,
    )


def methods(run: Run) -> dict[str, str]:
    """Every method that decides which units go, by name; those that cannot be decided here say so later."""
    names = [name for name, method in METHODS.items() if method.decision not in ("none", "learned")]
    own = [name for name in run.study.methods if name in names]
    return {name: label(name) for name in dict.fromkeys(["gprune", *own, *names])}


def texts(run: Run) -> Mapping[str, str]:
    """Whose scores can decide."""
    return {
        whatif.PRIMARY: f"A: {run.study.primary}",
        whatif.AUXILIARY: f"B: {run.study.auxiliary}",
        whatif.ADAPTED: "A, adapted by the lines",
    }


def show(run: Run, settings: ReliabilitySettings) -> None:
    """Draws the card.

    Args:
        run: the run.
        settings: the rule as it stands.
    """
    with card("rasa_keep", "What moves a model: retention, text, method", run) as drawn:
        left, right = st.columns([2, 1], vertical_alignment="bottom")
        with left:
            address.slider(
                "Decoder weights kept", KEEP, run.study.retention, LEAST, MOST, 0.01, format="percent"
            )
        with right:
            address.selectbox("Method", methods(run), METHOD, "gprune")
        address.segmented("Scored from", texts(run), TEXT, whatif.ADAPTED)
        wanted = choice(run, settings)
        _kept(run, drawn, wanted, lab.lab_masks(run, wanted))


def described(run: Run, wanted: whatif.LabChoice) -> str:
    """A choice in short: `FLAP, 50 % kept, scored from B: science-docs`."""
    return (
        f"{label(wanted.method)}, {percent(wanted.retention)} kept, scored from {texts(run)[wanted.scoring]}"
    )


def _kept(run: Run, drawn: Card, wanted: whatif.LabChoice, masks: PruningMasks) -> None:
    own = lab.own_masks(run)
    changed = flips.compare(own, masks)
    drawn.title(
        f"{plain(label(wanted.method))} keeps {percent(masks.ffn.mean(), 1)} of the neurons and "
        f"{percent(masks.heads.mean(), 1)} of the key/value groups at {percent(masks.retention, 2)} of "
        "the weights"
    )
    kept = decisions.layer_retention(own)[0], decisions.layer_retention(masks)[0]
    unlearned = NOT_LEARNED if wanted.method == "gprune" else DECIDED
    drawn.chart(
        figures.kept_by_layer(*kept, described(run, wanted)),
        f"{changed.total:,} neurons ({percent(changed.total / changed.neurons, 1)}) and {changed.heads:,} "
        f"key/value groups differ from this run's GPrune at {percent(run.study.retention)}.",
        how=unlearned,
        table=lambda: _table(own, masks),
    )


def _table(own: PruningMasks, masks: PruningMasks) -> pd.DataFrame:
    return decisions.layer_table({"this run": own, "choice": masks})
