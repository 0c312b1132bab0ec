"""The list of edits of a session, one a run, and what becomes of a method's masks with it.

The page has it in its address, so that a reload, Back and a link that is passed on bring it back.
"""

from collections.abc import Iterable

import streamlit as st

from gprune.analysis.mask_edits import Edit, Edited, edited, obstacle
from gprune.analysis.mask_edits.edits import MOST_EDITS, read, require_there, written
from gprune.analysis.mask_edits.rebalance import margins
from gprune.app.ui import url_state
from gprune.app.ui.chart_style import called
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages import Results
from gprune.records import Array
from gprune.study.methods import METHODS
from gprune.system.errors import MethodError, SettingsError

METHOD = "hand_method"
EDITS = "hand_edits"
"""key of the list in the address"""
_LISTS, _WHOSE = "hand_lists", "hand_edits_of"
"""where the session keeps the lists, and whose is the one of the address"""
LONGEST = 2000
"""characters of a list that an address takes"""


def edits(run: Run) -> tuple[Edit, ...]:
    """The list of a run; for its page, whose address has it.

    Raises SettingsError where the address has a list that cannot be read, or units that the run lacks; it is
    dropped then.
    """
    known, whose = known_edits(run), st.session_state.get(_WHOSE)
    # what an address brings is of the run that it names, whichever was shown before
    came, asked = url_state.arrived(EDITS), url_state.text(EDITS)
    st.session_state[_WHOSE] = _place(run)
    if not came and whose not in (None, _place(run)):
        put(run, known)
    elif asked != _in_address(known):
        put(run, ())
        put(run, _there(run, read(asked)))
    return known_edits(run)


def known_edits(run: Run) -> tuple[Edit, ...]:
    """The list of a run as this session knows it; for every page."""
    found: tuple[Edit, ...] = st.session_state.get(_LISTS, {}).get(_place(run), ())
    return found


def put(run: Run, lines: Iterable[Edit]) -> None:
    """Replaces the list."""
    st.session_state.setdefault(_LISTS, {})[_place(run)] = tuple(lines)
    st.session_state[_WHOSE] = _place(run)
    url_state.put(EDITS, _in_address(known_edits(run)))


def is_long(lines: Iterable[Edit]) -> bool:
    """Whether an address has no room for a list."""
    return len(written(lines)) > LONGEST


def _in_address(lines: tuple[Edit, ...]) -> str:
    return "" if is_long(lines) else written(lines)


def _there(run: Run, lines: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """Lines that a run has the units of; see `require_there`."""
    shape, partition = run.load(stages.shape), run.load(stages.partition)
    for line in lines:
        require_there(line, shape, partition)
    return lines


def add(run: Run, lines: Iterable[Edit]) -> None:
    """Puts lines at the end; earlier ones about the same units go.

    Raises SettingsError where the run has no such unit, or the list would be too long.
    """
    more = _there(run, tuple(lines))
    units = {_about(line) for line in more}
    whole = [*(one for one in known_edits(run) if _about(one) not in units), *more]
    if len(whole) > MOST_EDITS:
        raise SettingsError(
            f"a list of the Mask editor has {MOST_EDITS:,} lines at most, and this would be {len(whole):,}: "
            "take modules in place of their neurons"
        )
    put(run, whole)


def methods(run: Run) -> dict[str, str]:
    """Methods whose masks can be a start, GPrune first, by name; MissingResultError without masks."""
    return {name: called(name) for name in run.require(run.cut, stages.masks)}


def usual(run: Run) -> str:
    """Whose masks are edited where nobody chooses: the first that can be."""
    known = methods(run)
    return next((name for name in known if not obstacle(run.results, name)), next(iter(known)))


def outcome(run: Run, name: str, lines: tuple[Edit, ...]) -> Edited:
    """A method's masks after a list; nothing is learned anew. Errors as `analysis.mask_edits.edited`."""
    known = [run.key(stages.masks, METHODS[name].masks), run.key(stages.partition)]
    return _outcome(run.root, tuple(known), name, lines, run.study.sparsity.alignment, run.results)


@st.cache_resource(max_entries=64, show_spinner=False)
def _outcome(
    root: str,
    keys: tuple[str, ...],
    name: str,
    lines: tuple[Edit, ...],
    alignment: int,
    _results: Results,
) -> Edited:
    # a method that keeps no scores is refused before they are looked for
    if reason := obstacle(_results, name):
        raise MethodError(reason)
    return edited(_results, name, lines, _margins(root, keys, name, _results))


@st.cache_resource(max_entries=4, show_spinner=False)
def _margins(root: str, keys: tuple[str, ...], name: str, _results: Results) -> Array:
    return margins(_results, name, _results.get(stages.masks, METHODS[name].masks))


def _about(line: Edit) -> tuple[str, int, int]:
    return line.kind, line.layer, line.number


def _place(run: Run) -> str:
    return f"{run.root} {run.name}"
