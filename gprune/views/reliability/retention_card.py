"""What visibly moves a model: how much is kept, whose scores decide, and by which method."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from gprune import whatif
from gprune.analysis import decisions, flips
from gprune.analysis.signs import percent
from gprune.records import PruningMasks
from gprune.study import ReliabilitySettings
from gprune.views.frame import address
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import label
from gprune.views.frame.loaders import Run
from gprune.views.frame.picture import shown
from gprune.views.frame.text import plain
from gprune.views.reliability import lab
from gprune.views.reliability import whatif_charts as figures
from gprune.views.reliability.changes_card import NOT_LEARNED
from gprune.views.reliability.pictures import told

KEEP, TEXT, METHOD = "rasa_keep", "rasa_text", "rasa_method"
LEAST, MOST = 0.05, 0.98
DECIDED = "Decided from scores that are there."


def choice(run: Run, settings: ReliabilitySettings) -> whatif.LabChoice:
    """What was chosen, from the address."""
    return whatif.LabChoice(
        address.choice(METHOD, lab.methods(run), "gprune"),
        address.number(KEEP, run.study.retention, LEAST, MOST),
        address.choice(TEXT, lab.texts(run), whatif.ADAPTED),
        settings,
    )


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
            address.selectbox("Method", lab.methods(run), METHOD, "gprune")
        address.segmented("Scored from", lab.texts(run), TEXT, whatif.ADAPTED)
        wanted = choice(run, settings)
        _kept(run, drawn, wanted, lab.lab_masks(run, wanted))


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
        shown(
            "kept",
            figures.kept_by_layer(*kept, lab.described(run, wanted)),
            method=wanted.method,
            retention=None if wanted.retention == run.study.retention else wanted.retention,
            scoring=wanted.scoring,
            **told(run, wanted.settings),
        ),
        f"{changed.total:,} neurons ({percent(changed.total / changed.neurons, 1)}) and {changed.heads:,} "
        f"key/value groups differ from this run's GPrune at {percent(run.study.retention)}.",
        how=unlearned,
        table=lambda: _table(own, masks),
    )


def _table(own: PruningMasks, masks: PruningMasks) -> pd.DataFrame:
    return decisions.layer_table({"this run": own, "choice": masks})
