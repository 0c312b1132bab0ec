"""Send questions to the live worker from a page, and draw its answers until they are complete.

The module also measures the gain of a repair for masks that are not the run's. These masks and the base, the masks that
they are compared with, get the same repair, each fitted to its own masks. Differences are paired over the same windows.
"""

import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import streamlit as st

from gprune.analysis.formatting import format_signed
from gprune.analysis.paired_test import interval_in_percent
from gprune.app import preview
from gprune.app.preview import NO_DIFFERENCE, Answer, Question, Source, repair_of, scale_roles
from gprune.app.ui import address, run_status
from gprune.app.ui.text import escape, escape_error
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages.inputs import SAMPLED
from gprune.pipeline.stages.results import repair_label
from gprune.records.repairs import labels
from gprune.study import RepairSettings
from gprune.study.methods import METHODS

INTERVAL = 0.7
"""seconds between two redraws while windows are missing"""
LABEL, SCALES = "Repair the kept weights", "Learn scales too"
"""labels of the two switches"""
_LIVE_SECONDS = 20.0
"""pages ask the model by default if the run needed less time to measure a model on their texts"""
_REASONS = {"loading": "The worker is loading the model.", "waiting": "The worker is busy with another request."}
"""reasons for a missing answer, by phase of the worker"""


def owner(place: str) -> str:
    """Return the owner of the questions of this session at one place of a page.

    A new question of an owner replaces the owner's last question.
    """
    return f"{st.session_state.setdefault('preview_owner', uuid.uuid4().hex)}:{place}"


def is_live_by_default(run: Run, texts: Sequence[str] = ()) -> bool:
    """Return True if measuring one model on the texts, by default the first of the run, took less than 20 s."""
    evaluated = texts or run.study.evaluation.texts[:1]
    method = next(iter(run.masks_of)) if run.study.prunes_experts else "gprune"
    measured = [stages.perplexity(run.graph, method, text) for text in evaluated]
    seconds = [float(run.results.details(stage).get("seconds") or math.nan) for stage in measured]
    # an unknown time is NaN, for which the comparison is False
    return sum(seconds, 0.0 if seconds else math.nan) < _LIVE_SECONDS and not run_status.missing_inputs(run)


def can_ask(run: Run, is_requested: bool) -> bool:
    """Return True if live evaluation is requested and possible; show what a packed run lacks for it."""
    missing = run_status.missing_inputs(run) if is_requested else ""
    if missing:
        st.info(escape_error(missing), icon=":material/inventory_2:")
    return is_requested and not missing


def is_refining(identities: Iterable[str]) -> bool:
    """Return True if some answers still lack windows."""
    answers = [preview.pool().latest(identity) for identity in identities]
    return any(answer is None or answer.progress == "open" for answer in answers)


def is_reading(identities: Iterable[str]) -> bool:
    """Return True if some answers of `Client.read` are incomplete."""
    readings = [preview.pool().reading(identity) for identity in identities]
    return any(reading is None or reading.progress == "open" for reading in readings)


def describe_wait(run: Run, otherwise: str, **by_phase: str) -> str:
    """Return the reason for a missing answer: the worker's own, else that of its phase, else `otherwise`.

    `by_phase` has reasons for further phases of the worker, such as `warm`.
    """
    state = preview.pool().state(Source(run.root, run.graph))
    return escape_error(state.reason or (_REASONS | by_phase).get(state.phase, otherwise))


def draw_worker_state(run: Run, otherwise: str) -> None:
    """Draw a progress bar while the worker fits weights, else the reason for a missing answer."""
    state = preview.pool().state(Source(run.root, run.graph))
    if state.phase == "fitting":
        st.progress(state.share, text=escape_error(state.reason))
    else:
        st.caption(describe_wait(run, otherwise))


def draw_until_complete(unfinished: Callable[[], bool], draw: Callable[[bool], None], every: float = INTERVAL) -> None:
    """Draw answers, and redraw them every `every` seconds until `unfinished` returns False.

    `draw` receives True if the answers were incomplete when the page was drawn.
    """
    refining = unfinished()

    def answers() -> None:
        if refining and address.in_fragment() and not unfinished():
            # the answers are complete: redraw the page, which sets the card's title and stops the timer. If the page
            # itself is being drawn, a redraw would reset its fields to their defaults.
            st.rerun(scope="app")
        draw(refining)

    address.fragment(answers, every if refining else None)()


def draw_paired(text: str, answer: Answer | None, against: str, title: str) -> None:
    """Draw the perplexity on one text under a title, and next to it the difference from the base.

    `title` and `against`, the name of the base, are Markdown.
    """
    if answer is not None and answer.problem:
        st.error(f"{escape(text)}: {escape_error(answer.problem)}", icon=":material/error:")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(width=230):
            draw_perplexity(title, answer)
        st.caption(_describe_difference(text, answer, against), width="stretch")


def draw_perplexity(title: str, answer: Answer | None, omitted_prefix: str = "") -> bool:
    """Draw the perplexity of an answer with its verdict; return True if the perplexity is known.

    `omitted_prefix` is left out of the verdict.
    """
    if answer is None or not answer.done:
        st.markdown("measuring …")
        return False
    verdict = answer.verdict.removeprefix(omitted_prefix)
    st.metric(title, f"{answer.perplexity:.2f}", verdict, delta_color="off", delta_arrow="off")
    return True


def _describe_difference(text: str, answer: Answer | None, against: str) -> str:
    difference = answer.difference if answer is not None else None
    if answer is None or difference is None:
        return f"{escape(text)}: no window measured yet"
    return (
        f"against {answer.base_perplexity:.2f} of {against}  \n"
        f"{format_signed(difference.change, '.2%')} {interval_in_percent(difference, 2)} of perplexity, "
        f"{format_signed(difference.nats, '.4f')} ± {difference.nats_margin:.4f} nats/token, "
        "95% interval, paired over windows  \n"
        f"{answer.done} of {answer.windows} windows" + ("" if answer.progress != "open" else " …")
    )


@dataclass(frozen=True, slots=True)
class RepairedRequests:
    """Identities of the answers about the effect of a repair on one text."""

    after: str
    """the repaired model, compared with the base after the same repair"""
    gain: str
    """the repaired model, compared with the same model before the repair"""
    base_gain: str
    """the repaired base, compared with the base before the repair; empty if the base is the dense model"""

    @property
    def identities(self) -> tuple[str, ...]:
        """Identities of all answers."""
        return tuple(filter(None, (self.after, self.gain, self.base_gain)))


def draw_switches(run: Run, key: str, method: str) -> RepairSettings | None:
    """Draw the switches of the repair and of its learned scales; return the repair, or None if it is switched off."""
    is_on = address.toggle(
        LABEL,
        key,
        help="The worker fits the kept columns of o_proj and down_proj to these masks and to the reference masks. "
        "This takes seconds on the demo and minutes on a large model.",
    )
    if not is_on:
        if sentence := preview.describe_left_out(run.graph, method):
            st.caption(sentence)
        return None
    steps = run.study.scales.steps
    scaled = address.toggle(
        SCALES,
        f"{key}_scales",
        run.study.repair.scaled,
        help=f"The worker also learns one factor per kept unit and one bias per channel, in {steps} steps on "
        "calibration texts. This takes a minute on the demo.",
    )
    repair = repair_of(run.study, scaled)
    st.caption(escape(repair_caption(run, method, repair)))
    return repair


def repair_caption(run: Run, method: str, chosen: RepairSettings) -> str:
    """Return the caption that compares `chosen`, the repair of live masks of a method, with the repair of the run."""
    graph, own_repairs = stages.with_repair(run.graph, asdict(chosen)), stages.repairs(run.graph, method)
    study = graph.study
    if chosen.scaled and SAMPLED not in scale_roles(Source(run.root, graph)):
        # the worker cannot sample text, so it learns scales on A and B alone if the run has not sampled any
        study = study.with_settings({"scales.texts": "both"})
    fitted_label = f"{repair_label(study)}, fitted to both sets of masks"
    if chosen.base == run.study.repair.base:
        omission = " Learned scales are left out." if run.study.repair.scaled and not chosen.scaled else ""
        return f"Repaired as in this run: {fitted_label}.{omission}"
    if any(repair.fitted for repair in own_repairs):
        return f"Repaired by {fitted_label}. The run's own repair is not used: it is fitted to the run's masks."
    included = f" instead of {labels(own_repairs)}, which the values above include" if own_repairs else ""
    return f"Repaired by {fitted_label}{included}. This run itself fits no weights."


def ask_repaired(
    source: Source, question: Question, base: Question, owner: str, repair: RepairSettings
) -> RepairedRequests:
    """Ask for the effect of a repair on the masks of a question and on the base. Raises the errors of `Client.ask`.

    `question` and `base` are the questions without the repair.
    """
    before, before_base = replace(question, fitted=False), replace(base, fitted=False)
    after = replace(before, repair=repair)
    has_masks = METHODS[base.method].decision != "none"
    after_base = replace(before_base, repair=repair) if has_masks else base

    def request(question: Question, place: str, against: Question) -> str:
        # the worker answers `ask_many` after `ask`, so the answers without this repair come first
        return preview.pool().ask_many(source, [question], f"{owner}:{place}", against)[0]

    return RepairedRequests(
        request(after, "repaired", after_base),
        request(after, "gain", before),
        request(after_base, "base gain", before_base) if has_masks else "",
    )


def draw_repaired(text: str, requests: RepairedRequests, answers: Mapping[str, Answer | None], against: str) -> None:
    """Draw perplexities after the repair, below those before it, and a sentence on the gain by the repair."""
    after = answers[requests.after]
    base_name = f"{against}, repaired" if requests.base_gain else against
    draw_paired(text, after, base_name, title=f"repaired, on {escape(text)}")
    if after is not None and not after.problem:
        st.caption(describe_gain(after, answers[requests.gain], answers.get(requests.base_gain), against))


def describe_gain(after: Answer, gain: Answer | None, base_gain: Answer | None, against: str) -> str:
    """Return the gain by the repair as Markdown: paired changes of perplexity with 95% intervals."""
    if gain is None or gain.difference is None or not after.done:
        return "Measuring the effect of the repair."
    sentence = f"**The repair: {_describe_change(gain)}**"
    if base_gain is not None and base_gain.difference is not None:
        sentence += f"; for {against}: {_describe_change(base_gain)}"
    if base_gain is not None:
        sentence += f". Both repaired: {after.verdict}"
    return f"{sentence}."


def _describe_change(answer: Answer) -> str:
    """Return the verdict of an answer, with the interval also if there is no measurable difference."""
    difference = answer.difference
    if difference is None or answer.verdict.startswith("too early"):
        return answer.verdict
    if answer.verdict == NO_DIFFERENCE:
        return f"{NO_DIFFERENCE} ({difference.change:+.2%}, {interval_in_percent(difference, 2).strip('()')})"
    return answer.verdict
