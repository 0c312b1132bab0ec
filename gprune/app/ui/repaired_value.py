"""What a repair of the kept weights is worth for masks that somebody plays with: before, after, against what.

Both sides are repaired alike, each by weights that are fitted to its own masks; all differences are paired
over the same windows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import streamlit as st

from gprune.analysis.paired_test import interval_in_percent
from gprune.app import preview
from gprune.app.preview import NO_DIFFERENCE, Answer, Question, Source, repair_of, scale_roles
from gprune.app.ui import asking, url_state
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages.inputs import SAMPLED
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.study import RepairSettings
from gprune.study.methods import METHODS

LABEL, SCALES = "Repair the kept weights", "Learn scales too"


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers that were asked for of one text, by identity."""

    after: str
    """repaired, against the base repaired alike"""
    gain: str
    """repaired, against the same masks unrepaired"""
    base_gain: str
    """the base repaired, against itself unrepaired; empty where nothing of it can be repaired"""

    @property
    def identities(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(filter(None, (self.after, self.gain, self.base_gain)))


def switch(run: Run, key: str, method: str) -> RepairSettings | None:
    """Draw the switches of the repair and of its learned scales; return the repair, or None where it is off."""
    wanted = url_state.toggle(
        LABEL,
        key,
        help="The worker fits the kept columns of o_proj and down_proj to these very masks, and to those "
        "that they are held against. At the size of the demo that takes seconds, on a large model minutes.",
    )
    if not wanted:
        if told := preview.left_out(run.graph, method):
            st.caption(told)
        return None
    steps, kept = run.study.scales.steps, run.study.repair.scaled
    scaled = url_state.toggle(
        SCALES,
        f"{key}_scales",
        kept,
        help=f"The worker also learns one factor for each kept unit and one bias for each channel, in {steps} steps "
        "on calibration texts. On the demo that takes a minute.",
    )
    repair = repair_of(run.study, scaled)
    st.caption(plain(about(run, method, repair)))
    return repair


def about(run: Run, method: str, chosen: RepairSettings) -> str:
    """Describe how masks of a method are repaired here, and how the run itself repairs them."""
    graph = stages.with_repair(run.graph, asdict(chosen))
    study = graph.study
    if chosen.scaled and SAMPLED not in scale_roles(Source(run.root, graph)):
        study = study.with_settings({"scales.texts": "both"})
    words = repair_label(study)
    if chosen.base == run.study.repair.base:
        without = " Learned scales are left out." if run.study.repair.scaled and not chosen.scaled else ""
        return f"Repaired as this run repairs its methods: {words}, fitted to the masks of either side.{without}"
    own = " and ".join(one.label for one in stages.repairs(run.graph, method))
    instead = f" in place of {own}, which the figures before it have" if own else ""
    return f"Repaired by {words}, fitted to the masks of either side{instead}: this run itself fits no weights."


def ask(source: Source, question: Question, base: Question, owner: str, repair: RepairSettings) -> Asked:
    """Has the masks of a question, and the base, repaired and measured; errors as `Client.ask`.

    `question` and `base` are those of the figures before, which are measured first.
    """
    bare, bare_base = replace(question, fitted=False), replace(base, fitted=False)
    after = replace(bare, repair=repair)
    known = METHODS[base.method].decision != "none"
    after_base = replace(bare_base, repair=repair) if known else base

    def asked(one: Question, place: str, against: Question) -> str:
        # what needs no fit comes first
        return preview.pool().ask_many(source, [one], f"{owner}:{place}", against)[0]

    return Asked(
        asked(after, "repaired", after_base),
        asked(after, "gain", bare),
        asked(after_base, "base gain", bare_base) if known else "",
    )


def show(text: str, asked: Asked, answers: Mapping[str, Answer | None], against: str) -> None:
    """Draws the figures after the repair, below those before it, and what it is worth in a sentence."""
    after = answers[asked.after]
    words = f"{against}, repaired" if asked.base_gain else against
    asking.paired(text, after, words, title=f"repaired, on {plain(text)}")
    if after is not None and not after.problem:
        st.caption(sentence(after, answers[asked.gain], answers.get(asked.base_gain), against))


def sentence(after: Answer, gain: Answer | None, base_gain: Answer | None, against: str) -> str:
    """What the repair is worth, as Markdown: paired changes of perplexity with their 95 % intervals."""
    if gain is None or gain.difference is None or not after.done:
        return "What the repair is worth is being measured."
    told = f"**The repair: {_change(gain)}**"
    if base_gain is not None and base_gain.difference is not None:
        told += f"; for {against}: {_change(base_gain)}"
    if base_gain is not None:
        told += f". Both repaired: {after.verdict}"
    return f"{told}."


def _change(answer: Answer) -> str:
    """A change with its error, in words; also where it is within the noise."""
    found = answer.difference
    if found is None or answer.verdict.startswith("too early"):
        return answer.verdict
    if answer.verdict == NO_DIFFERENCE:
        return f"{NO_DIFFERENCE} ({found.change:+.2%}, {interval_in_percent(found, 2).strip('()')})"
    return answer.verdict


def identities(asked: Sequence[Asked]) -> list[str]:
    """The answers of several texts."""
    return [identity for one in asked for identity in one.identities]
