"""A passage of text, coloured anew whenever other units of the model are kept.

The worker reads it once at every retention of a grid, coarsely first, so that the slider has somewhere to go
as soon as possible, and finer while one looks; then the browser alone colours it. What was read stays known.
"""

import contextlib
import time
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import streamlit as st

from gprune.analysis import token_loss, whatif
from gprune.analysis.formatting import counted, percent, signed
from gprune.analysis.token_loss import Token
from gprune.analysis.verdict import OURS
from gprune.app import preview
from gprune.app.preview import DENSE, Passage, Question, Read, Reading, Source
from gprune.app.ui import asking, derived_cache, packed, retention_passage, story, url_state
from gprune.app.ui.chart_style import called
from gprune.app.ui.retention_passage import Level, Shown
from gprune.app.ui.text import plain, said, short
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array
from gprune.study.methods import METHODS
from gprune.system.errors import GpruneError, MethodError, SettingsError, StoreError

EVERY = 0.25
"""seconds between two looks: whoever moves a slider watches"""
AHEAD = 2.0
"""seconds between two looks while another slide is shown"""
KEEP = "rasa_keep"
"""how much is kept, in the address"""
LEAST, MOST = 0.05, 0.98
GRID = (*(round(0.05 * step, 2) for step in range(1, 20)), MOST)
"""retentions at which the passage is read, beside the run's own and the chosen one"""
AT_ONCE = 4
"""retentions whose masks are decided between two looks: each takes a quarter second at the size of 7B"""
LIMIT = 4.0
"""nats at which the colours end: the same at every retention, so that colours can be compared"""
KEY = "retention_passage"


def stored(run: Run, method: str, text: str) -> Array:
    """(windows,) losses that the run has stored; none where it has not, or they are damaged."""
    # a damaged result says nothing of its text, and the worker counts the windows by itself
    with contextlib.suppress(StoreError):
        if (found := run.find(stages.perplexity, method, text)) is not None:
            return found.losses
    return np.empty(0)


def worst_window(run: Run, method: str, text: str) -> tuple[int, float] | None:
    """The stored window that a method loses most on beside dense, and nats/token; None where none is."""
    dense, pruned = stored(run, DENSE, text), stored(run, method, text)
    return token_loss.worst_window(dense, pruned) if 0 < len(pruned) == len(dense) else None


def slider(run: Run) -> float:
    """Draws the slider of the retention, which begins at that of the run; the fraction that is chosen."""
    return url_state.slider("Decoder weights kept", KEEP, run.study.retention, LEAST, MOST, 0.01, format="percent")


def retention(run: Run) -> float:
    """The fraction that is chosen, from the address."""
    return url_state.number(KEEP, run.study.retention, LEAST, MOST)


@dataclass(frozen=True, slots=True)
class Subject:
    """Which passage is read, and by what the masks are decided."""

    choice: whatif.LabChoice
    """at the run's own retention"""
    text: str
    window: int
    worst: float | None
    """nats/token that its method as measured loses more on it than dense; None where that is not known"""

    @property
    def where(self) -> str:
        """The passage in words."""
        found = f"Window {self.window} of {short(self.text)}"
        if self.worst is None:
            return found
        change = f"{signed(self.worst, '.2f')} nats/token"
        return f"{found}, which {called(self.choice.method)} as measured loses most on ({change})"


@dataclass(slots=True)
class Course:
    """What has been asked so far."""

    subject: Subject
    levels: list[float] = field(default_factory=list)
    """retentions that were asked for, in the order of asking"""
    refused: dict[float, str] = field(default_factory=dict)
    """retentions that the method cannot be decided at, and why"""
    identity: str = ""
    since: float = field(default_factory=time.monotonic)
    """when the first was asked for"""


def order(chosen: float, own: float) -> list[float]:
    """Retentions in the order in which they are read: those two, then always the one in the widest gap."""
    found, left = list(dict.fromkeys((chosen, own))), [one for one in GRID if one not in (chosen, own)]
    while left:
        widest = max(left, key=lambda one: min(abs(one - there) for there in found))
        found.append(widest)
        left.remove(widest)
    return found


def ahead(run: Run) -> None:
    """Has the passage read while another slide is shown; what is missing the last slide says."""
    if not run.cut or (run.packed and packed.lacking(run)):
        return

    def look() -> bool:
        with contextlib.suppress(GpruneError):
            course = _course(run, _own(run))
            # what went wrong would go wrong again at every slide
            return not _reading(course).problem and _advance(run, course)
        return False

    # nothing ticks once all is read
    if look():
        st.fragment(run_every=AHEAD)(look)()


def show(run: Run) -> None:
    """Draws slider and passage of a slide.

    Raises what `story.on_unseen` and `derived_cache.masks_of` raise.
    """
    if run.cut and asking.allowed(run, wanted=True):
        _look(run, _own(run), fills=True)


def follow(run: Run, choice: whatif.LabChoice) -> None:
    """Draws slider and passage of a page that follows the retention; not within another fragment.

    Raises what `show` raises, and where the choice cannot be decided.
    """
    derived_cache.masks_of(run, choice)
    _look(run, choice, fills=False)


def _look(run: Run, choice: whatif.LabChoice, *, fills: bool) -> None:
    """Draws what there is of it, and looks again; it `fills` a slide, or stands on a page that follows it."""
    # read here, so that it stands in the address of a slide
    retention(run)
    course = _course(run, choice)

    def draw(refining: bool) -> None:
        if not fills and url_state.in_fragment() and retention(run) != choice.retention:
            # the slider was let go: what else of the page shows the retention is outside
            st.rerun(scope="app")
        _draw(run, course, refining, fills)

    asking.look(run, lambda: _advance(run, course), draw, EVERY)


def _own(run: Run) -> whatif.LabChoice:
    """GPrune as the run has it, or the first method that has cut a model."""
    method = OURS if OURS in run.cut else next(iter(run.cut))
    scoring = whatif.ADAPTED if METHODS[method].decision == "learned" else whatif.PRIMARY
    return whatif.LabChoice(method, run.study.retention, scoring, run.study.reliability)


def _course(run: Run, choice: whatif.LabChoice) -> Course:
    """What this session has asked of a choice; a new one where the run has measured something else since."""
    text, _ = story.on_unseen(run)
    window, worst = worst_window(run, choice.method, text) or (0, None)
    # at any retention it is the same subject
    subject = Subject(replace(choice, retention=run.study.retention), text, window, worst)
    name = f"{KEY}_{run.name}"
    known = st.session_state.get(name)
    if known is None or known.subject != subject:
        known = st.session_state[name] = Course(subject)
    found: Course = known
    return found


def _reading(course: Course) -> Reading:
    found = preview.pool().reading(course.identity) if course.identity else None
    return found or Reading("dropped", (None,) * (1 + len(course.levels)))


def _advance(run: Run, course: Course) -> bool:
    """Asks for the next retentions once those before are read; whether more is to come.

    Raises what `derived_cache.masks_of` raises, but for retentions that the method does not reach.
    """
    reading = _reading(course)
    if reading.progress == "open":
        return True
    if reading.problem and url_state.in_fragment():
        return False
    wanted = dict.fromkeys([*course.levels, *order(retention(run), run.study.retention)])
    left = [level for level in wanted if level not in course.levels and level not in course.refused]
    if reading.progress == "complete" and not left:
        return False
    for level in left[: AT_ONCE if course.levels else 1]:
        _decide(run, course, level)
    models = [Question("", DENSE), *(_question(run, course.subject, level) for level in course.levels)]
    what = Passage(course.subject.text, course.subject.window)
    course.identity = preview.pool().read(Source(run.root, run.graph), what, models, asking.owner(KEY))
    # what could not be had a moment ago is not asked for again at once
    return not _reading(course).problem


def _decide(run: Run, course: Course, level: float) -> None:
    """Takes up a retention, or notes why the method cannot be decided at it."""
    try:
        _question(run, course.subject, level)
    except (MethodError, SettingsError) as error:
        course.refused[level] = str(error)
    else:
        course.levels.append(level)


def _question(run: Run, subject: Subject, level: float) -> Question:
    masks = derived_cache.masks_of(run, replace(subject.choice, retention=level))
    return Question("", subject.choice.method, masks, fitted=False)


def _draw(run: Run, course: Course, refining: bool, fills: bool) -> None:
    """Draws what has been read; before that where the worker stands, and what the run itself has measured."""
    reading = _reading(course)
    dense, *pruned = reading.found
    there = {
        level: found
        for level, found in zip(course.levels, pruned, strict=False)
        if isinstance(dense, Read) and isinstance(found, Read)
    }
    if isinstance(dense, Read) and there:
        told = [f"{course.subject.where}."]
        if reading.problem:
            told.append(said(reading.problem))
        elif refining:
            every = len(set(order(retention(run), run.study.retention)) - set(course.refused))
            told.append(f"{len(there)} of {every} retentions are read; the slider stops at these.")
        shown = _shown(run, course, dense, there, " ".join(told))
        retention_passage.draw(shown, key=KEY, fills=fills, on_retention=partial(url_state.put, KEEP))
    elif problem := reading.problem or (not refining and next(iter(course.refused.values()), "")):
        st.error(said(problem), icon=":material/error:")
    else:
        _waits(run, course)


def _waits(run: Run, course: Course) -> None:
    """What is known before the worker has read anything."""
    waits = asking.waits(run, "The worker reads the passage.")
    seconds = counted(int(time.monotonic() - course.since), "second")
    st.markdown(f":material/hourglass_top: {waits[:1].upper()}{waits[1:].rstrip('.')}, {seconds} so far.")
    st.caption(f"{plain(course.subject.where)}. Its words follow as soon as they are read.")


def _shown(run: Run, course: Course, dense: Read, there: dict[float, Read], told: str) -> Shown:
    words = [token_loss.marked(Token(piece.text, piece.place, piece.of)) for piece in dense.pieces]
    method = course.subject.choice.method
    ends = [level for level in (*GRID, *there) if level not in course.refused]
    return Shown(
        tokens=tuple(words),
        dense=dense.losses,
        levels=tuple(_level(method, at, dense, there[at]) for at in sorted(there)),
        retention=retention(run),
        reach=(min(ends), max(ends)),
        limit=LIMIT,
        told=told,
    )


def _level(method: str, retention: float, dense: Read, pruned: Read) -> Level:
    change = f"{signed(token_loss.change(dense.losses, pruned.losses).nats, '.2f')} nats/token"
    return Level(retention, pruned.losses, f"{called(method)}, {percent(retention)} kept", change)
