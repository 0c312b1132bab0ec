"""Live perplexity of a choice on unseen text, measured by the worker."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from gprune.analysis import whatif
from gprune.app import preview
from gprune.app.pages.rasa import controls, curve_card, lab, retention_card
from gprune.app.pages.rasa.curve_card import Known
from gprune.app.pages.rasa.lines_card import changed_study
from gprune.app.pages.rasa.panels import DECIDED, NOT_LEARNED
from gprune.app.preview import Answer, Question, Source
from gprune.app.ui import asking, buttons, derived_cache, repaired_value, story, url_state, work
from gprune.app.ui.card import Card, card
from gprune.app.ui.text import plain, short
from gprune.evaluation.holdout import unseen
from gprune.pipeline import eta, stages
from gprune.pipeline.runs.opened import Run
from gprune.study import RepairSettings, Study
from gprune.system.units import duration

LIVE, TEXTS, AGAINST, CURVES = "rasa_live", "rasa_heldout", "rasa_against", "rasa_curves"
REPAIR = "rasa_repair"
VALUE = "preview_value"
"""key of what holds the first value; whoever waits for one looks there"""
_AGAINST = {"gprune": "this run's GPrune", "dense": "the dense model"}
_SHOWN = "rasa_preview_shown"


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """What a reader wants to see."""

    choice: whatif.LabChoice
    texts: list[str]
    """texts that are measured; the curve is of the first"""
    methods: list[str]
    """methods of the curve"""
    known: list[Known]
    """what the run itself has measured on the first text"""
    repair: RepairSettings | None
    """repair with which the choice is measured as well; None for no repair"""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was put to the worker: identities of the answers."""

    texts: dict[str, str]
    """of the choice, by text"""
    curve: dict[tuple[str, float], str]
    """of the curve's points, by method and retention, on the first text"""
    refused: dict[str, str]
    """why a method has not all points, by method"""
    repaired: dict[str, repaired_value.Asked]
    """of the choice repaired, by text; empty where that is not wanted"""

    @property
    def identities(self) -> list[str]:
        """All answers."""
        repaired = repaired_value.identities(list(self.repaired.values()))
        return [*self.texts.values(), *repaired, *self.curve.values()]


def wants_to_follow(run: Run) -> bool:
    """Return True if the choice has changed since the card was drawn."""
    return st.session_state.get(_SHOWN) != retention_card.choice(run, controls.settings(run))


def show(run: Run, curves: Sequence[str] = ()) -> None:
    """Draws the card; not within another fragment, because it looks at its answers by itself.

    `curves` are the methods whose curve is drawn where no others are chosen.
    """
    with card("rasa_preview", "What does the choice cost on unseen text?", run) as drawn:
        choice = retention_card.choice(run, controls.settings(run))
        st.session_state[_SHOWN] = choice
        st.caption(f"Measured: {plain(lab.described(run, choice))}.")
        texts, methods = _questions(run, curves)
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            url_state.segmented("Against", _AGAINST, AGAINST, "gprune")
            live = url_state.toggle("Live evaluation", LIVE, False)
        _full_run(run, choice)
        if not live:
            st.caption("A worker then loads the model and measures the windows; the answer is refined slowly.")
        repair = repaired_value.switch(run, REPAIR, choice.method) if live else None
        if not texts:
            return
        live = asking.allowed(run, live)
        # here, because an error inside a fragment does not reach the card
        known = curve_card.measured(derived_cache.measurements(run), texts[0])
        if live:
            # live points lack what is fitted to the run's own masks
            known = [one for one in known if not preview.left_out(run.graph, one[0])]
        wanted = _Wanted(choice, texts, methods, known, repair)
        if live:
            _look(drawn, run, wanted, _ask(run, wanted))
        else:
            curve_card.show(run, drawn, choice, methods, texts[0], known, {})


def _questions(run: Run, curves: Sequence[str]) -> tuple[list[str], list[str]]:
    """The texts and the methods of the curve that a reader wants."""
    known = list(run.study.evaluation.texts)
    standings = story.standings(run)
    apart = unseen(standings)
    left, right = st.columns(2, vertical_alignment="bottom")
    with left:
        names = {text: f"{text} ({standings[text].brief})" for text in known}
        texts = url_state.multiselect("Texts", names, TEXTS, apart or known)
    with right:
        chosen = url_state.multiselect("Curve of perplexity against retention", lab.methods(run), CURVES, curves)
    return texts, chosen


def _ask(run: Run, wanted: _Wanted) -> _Asked:
    """Puts the questions; asking the same again costs nothing."""
    choice, source = wanted.choice, Source(run.root, run.graph)
    masks = derived_cache.masks_of(run, choice)
    base = url_state.choice(AGAINST, _AGAINST, "gprune")
    found, repaired = dict[str, str](), dict[str, repaired_value.Asked]()
    for text in wanted.texts:
        question, owner = Question(text, choice.method, masks, fitted=False), asking.owner(f"choice {text}")
        # with the repair beside it, the base is shown before and after it as well
        beside = Question(text, base, fitted=wanted.repair is None)
        found[text] = preview.pool().ask(source, question, owner, beside)
        if wanted.repair is not None:
            repaired[text] = repaired_value.ask(source, question, beside, owner, wanted.repair)
    requests = curve_card.curve_requests(run, choice, wanted.methods, wanted.texts[0])
    asked = preview.pool().ask_many(source, requests.questions, asking.owner("curve")) if requests.questions else []
    return _Asked(found, dict(zip(requests.points, asked, strict=True)), requests.refused, repaired)


def _look(drawn: Card, run: Run, wanted: _Wanted, asked: _Asked) -> None:
    """Shows the answers, and looks again as long as more will come."""

    def draw(refining: bool) -> None:
        answers = {identity: preview.pool().latest(identity) for identity in asked.identities}
        _answered(drawn, run, wanted, asked, answers, refining)

    asking.look(run, lambda: asking.coming(asked.identities), draw)


def _answered(
    drawn: Card, run: Run, wanted: _Wanted, asked: _Asked, answers: dict[str, Answer | None], refining: bool
) -> None:
    if wants_to_follow(run):
        # the line of this chart was let go: slider and questions are outside
        st.rerun(scope="app")
    against = _AGAINST[url_state.choice(AGAINST, _AGAINST, "gprune")]
    for place, (text, identity) in enumerate(asked.texts.items()):
        asking.paired(text, answers[identity], against, None if place else VALUE)
        if text in asked.repaired:
            repaired_value.show(text, asked.repaired[text], answers, against)
    told = NOT_LEARNED if wanted.choice.method == "gprune" else DECIDED
    # always there, so that the chart below stays where it is
    if refining:
        asking.standing(run, told)
    else:
        st.caption(told)
    if wanted.repair is not None and wanted.methods:
        st.caption("The curve is of the weights before this repair.")
    points = curve_card.answered(asked.curve, wanted.known)
    curve_card.show(run, drawn, wanted.choice, wanted.methods, wanted.texts[0], points, asked.refused)


def _full_run(run: Run, choice: whatif.LabChoice) -> None:
    """What it takes to learn the thresholds of the choice, and the button that starts it."""
    study = full_study(run, choice)
    if study == run.study:
        st.caption("The choice is what this run has learned.")
        return
    results = stages.Results(run.results.store, stages.Graph(study, run.graph.inputs))
    seconds = eta.expected(results.course("all"), results).total
    with st.container(horizontal=True, vertical_alignment="center"):
        clicked = buttons.pressed("Run it in full", key="rasa_full", icon=":material/play_arrow:")
        # the frame, which was drawn before, is to show the job
        if clicked and work.start(run.root, study) is not None:
            st.rerun(scope="app")
        exchanged = "A run with both texts exchanged. " if choice.scoring == whatif.AUXILIARY else ""
        st.caption(
            f"{exchanged}Learns the thresholds and measures everything"
            + ("." if seconds is None else f": about {duration(seconds)}, as in earlier runs.")
        )


def full_study(run: Run, choice: whatif.LabChoice) -> Study:
    """The study that a choice is a preview of.

    A run scores from its A. What is scored from B is therefore a run with both texts exchanged; its modules
    are formed anew as well, from the same two texts.
    """
    study, settings = run.study, choice.settings
    if choice.scoring != whatif.ADAPTED and choice.method == "gprune":
        settings = replace(settings, selection="none")
    if choice.method == "gprune" and settings != study.reliability:
        study = changed_study(run, settings)
    if choice.method not in study.methods:
        study = replace(study, methods=(*study.methods, choice.method))
    if abs(choice.retention - study.retention) > 1e-9:
        study = replace(study, retention=choice.retention)
    if choice.scoring == whatif.AUXILIARY:
        study = replace(
            study,
            primary=study.auxiliary,
            auxiliary=study.primary,
            name=f"{study.name or short(study.model)}, texts exchanged",
        )
    return study
