"""Named threshold sets: kept, compared side by side, taken along as a file and sent to the launch form."""

from dataclasses import replace

import streamlit as st

from gprune.analysis import thresholds
from gprune.app.pages.rasa import controls, panels
from gprune.app.pages.rasa.sets import SETS, ThresholdSet
from gprune.app.ui import buttons, named_files, places, tables, url_state
from gprune.app.ui.card import Card, card_of
from gprune.pipeline.runs.opened import Run
from gprune.study import ReliabilitySettings

_KEY = "rasa_sets"
_HOW = (
    "Each row is a rule: the run’s own, the present lines, and what is saved under a name. Adapted modules "
    "are those in its corner, from B those of them that B scores; shares are of all neurons and groups."
)
_FLIPS = "Flips: neurons decided otherwise than in this run, its thresholds not learned anew."


def show(run: Run, settings: ReliabilitySettings) -> None:
    """Draws the card for the rule as it stands."""
    with card_of(panels.threshold_sets, run) as drawn:
        _saving(run, settings)
        named_files.complain(_KEY)
        kept, faults = SETS.kept(run.root)
        named_files.warn("A threshold set", faults)
        _compared(run, drawn, settings, kept)
        if kept:
            _use(run, kept)
        named_files.take_along(_KEY, SETS, run.root, kept, 1)


def _saving(run: Run, settings: ReliabilitySettings) -> None:
    """Keeps the present rule under a name."""

    def save(name: str) -> None:
        SETS.save(run.root, ThresholdSet(name, settings))

    proposal = thresholds.described(settings)
    named_files.saving(_KEY, "Save the present lines as", proposal, save, "rasa_sets_name", "rasa_sets_keep")


def _compared(run: Run, drawn: Card, settings: ReliabilitySettings, kept: list[ThresholdSet]) -> None:
    """Every set beside the present lines and the run's own."""
    table = panels.sets_table(run, settings, kept)
    tables.show(
        table, alt="threshold sets side by side",
        shares={"neurons kept": 2, "key/value groups kept": 2},
    )  # fmt: skip
    if kept:
        drawn.show(panels.threshold_sets(run, **panels.told(run, settings)), switch=False)
    else:
        drawn.tools(lambda: table, switch=False, caption=_FLIPS, how=_HOW)


def _use(run: Run, kept: list[ThresholdSet]) -> None:
    """Sets the lines by a set, sends it to the launch form, or forgets it."""
    named = {one.name: one for one in kept}
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    with left:
        chosen = named[url_state.selectbox("Set", list(named), "rasa_set", kept[0].name)]
    rule = chosen.settings
    lines = rule.drift_quantile, rule.score_quantile, rule.selection, rule.score_scale
    with right, st.container(horizontal=True):
        buttons.act("Set the lines", "rasa_sets_use", "tune", controls.put, *lines)
        if buttons.pressed("Send to Launch", key="rasa_sets_launch", icon=":material/rocket_launch:"):
            _send(run, chosen.name, rule)
        named_files.delete_button(_KEY, SETS, run.root, chosen)


def _send(run: Run, name: str, rule: ReliabilitySettings) -> None:
    """Opens the launch form with the run's settings and the rule filled in, and says so there."""
    changed = replace(run.study.reliability, **{field: getattr(rule, field) for field in panels.RULE})
    study = replace(run.study, reliability=changed)
    places.to_launch(study, f"The thresholds “{name}” and the other settings of this run are")
