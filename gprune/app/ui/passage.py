"""A passage of text, coloured anew whenever other units of the model are kept.

The worker reads it token by token; until it has, the passage stands as it was last coloured, and says so.
"""

import contextlib

import numpy as np
import streamlit as st

from gprune.analysis import token_loss, whatif
from gprune.analysis.formatting import percent, signed
from gprune.analysis.token_loss import Token
from gprune.app import preview
from gprune.app.preview import DENSE, Passage, Question, Read, Reading, Source
from gprune.app.ui import asking, derived_cache, tokens, url_state
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import plain, said, short
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array
from gprune.system.errors import StoreError

EVERY = 0.25
"""seconds between two looks: whoever moves a slider watches"""
KEEP = "rasa_keep"
"""how much is kept, in the address"""
LEAST, MOST = 0.05, 0.98
LIMIT = 4.0
"""nats at which the colours end: the same at every retention, so that colours can be compared"""


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
    return url_state.slider(
        "Decoder weights kept", KEEP, run.study.retention, LEAST, MOST, 0.01, format="percent"
    )


def retention(run: Run) -> float:
    """The fraction that is chosen, from the address."""
    return url_state.number(KEEP, run.study.retention, LEAST, MOST)


def show(run: Run, choice: whatif.LabChoice, text: str, key: str) -> None:
    """Draws the window of a text that a method of the run loses most on, coloured for a choice of masks.

    The first window where the run has stored no losses. `key` is one a place. Raises StoreError and
    SettingsError as `preview.Client.read`, and what `derived_cache.masks_of` raises.
    """
    method, masks = choice.method, derived_cache.masks_of(run, choice)
    label = f"{called(method)}, {percent(choice.retention)} kept"
    found = worst_window(run, method, text)
    window = found[0] if found else 0
    models = (Question("", DENSE), Question("", method, masks, fitted=False))
    source, owner = Source(run.root, run.graph), asking.owner(key)
    identity = preview.pool().read(source, Passage(text, window), models, owner)
    where = f"Window {window} of {plain(short(text))}" + (
        f", which {called(method)} as measured loses most on" if found else ""
    )

    def draw(refining: bool) -> None:
        _draw(run, preview.pool().reading(identity), refining, (where, label, key))

    asking.look(run, lambda: asking.unread([identity]), draw, EVERY)


def _draw(run: Run, reading: Reading | None, refining: bool, words: tuple[str, str, str]) -> None:
    """Draws the newest colours that are known; `words` are the place, the label, and the key."""
    where, label, key = words
    kept = f"{key}_last_{run.name}"
    if reading is not None and reading.problem:
        st.error(said(reading.problem), icon=":material/error:")
        return
    if reading is not None and all(isinstance(one, Read) for one in reading.found):
        st.session_state[kept] = (label, *reading.found)
        refining = False
    last = st.session_state.get(kept)
    if last is None:
        st.caption(f"{where}.")
        asking.standing(run, "The worker reads.")
        return
    of, dense, pruned = last
    shown = [token_loss.marked(Token(piece.text, piece.place, piece.of)) for piece in dense.pieces]
    tokens.draw(shown, dense.losses, pruned.losses, LIMIT, of, key=f"{key}_tokens")
    change = token_loss.change(dense.losses, pruned.losses)
    said_of = f"{plain(of)}: {signed(change.nats, '.2f')} nats/token on this window. {where}."
    st.caption(f"{said_of} {'The worker reads it anew …' if refining else ''}")
