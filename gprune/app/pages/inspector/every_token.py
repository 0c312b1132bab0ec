"""What the worker says of a neuron of the dense model, and passages whose tokens all have its colour."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import streamlit as st

from gprune.analysis.inspection import Activation
from gprune.app import preview
from gprune.app.pages.inspector.firing import Passage, Token
from gprune.app.preview import DENSE, Fired, Firing, Piece, Question, Source
from gprune.app.preview.token_answers import Found, What
from gprune.app.ui import asking
from gprune.app.ui.text import said
from gprune.app.ui.unit import Selection
from gprune.pipeline.runs.opened import Run
from gprune.records import Array

_CAPTION = (
    "Every token by its activation before down_proj in the dense model, which reads the sequence "
    "from its beginning: the deeper the colour, the stronger; underlined is negative, bold the "
    "strongest of its sequence, whose activation stands on the left."
)


def show(
    run: Run,
    unit: Selection,
    roles: Mapping[str, str],
    found: Mapping[str, Sequence[Activation]],
    key: str,
    draw: Callable[[dict[str, Fired]], None],
) -> None:
    """Has a neuron's passages read on every text, and draws them with what is known of them.

    `roles` and `found` are the texts' roles and strongest positions by letter. Raises StoreError where the
    tokens are gone.
    """
    asked = {
        letter: Firing(roles[letter], unit.layer or 0, unit.neuron or 0, tuple(map(_place, places)))
        for letter, places in found.items()
    }

    def drawn(answers: dict[str, Found], _: bool) -> None:
        draw({letter: one for letter, one in answers.items() if isinstance(one, Fired)})
        st.caption(_CAPTION)

    ask(run, asked, key, drawn)


def coloured(alone: Sequence[Passage], places: Sequence[Activation], fired: Fired, most: float) -> list[Passage]:
    """Passages with all their tokens; `most` is the size that has the full colour."""
    return [
        replace(one, tokens=tuple(_tokens(*passage, place.at, most)))
        for one, place, passage in zip(alone, places, fired.passages, strict=True)
    ]


def _place(one: Activation) -> tuple[int, int, int]:
    first = one.position - one.at
    return one.sequence, first, first + len(one.ids) - 1


def _tokens(pieces: Sequence[Piece], values: Array, at: int, most: float) -> list[Token]:
    """Tokens with their text; those of one character are one, as strong as the strongest of them."""
    found, start = list[Token](), 0
    while start < len(pieces):
        end = start + max(pieces[start].of, 1)
        own = values[start:end]
        value = float(own[np.argmax(np.abs(own))])
        strength = min(abs(value) / most, 1.0) if most else 0.0
        found.append(Token(pieces[start].text, f"{value:+.3g}", strength, value < 0, start <= at < end))
        start = end
    return found


def ask(run: Run, asked: Mapping[str, What], key: str, draw: Callable[[dict[str, Found], bool], None]) -> None:
    """Asks by name, and has drawn what is known of the answers; `draw` is told whether more will come.

    `key` is one a card. Raises StoreError where the run lacks what is asked about.
    """
    source = Source(run.root, run.graph)
    identities = {
        name: preview.pool().read(source, what, [Question("", DENSE)], asking.owner(f"{key} {name}"))
        for name, what in asked.items()
    }

    def answers(refining: bool) -> None:
        now = {name: preview.pool().reading(identity) for name, identity in identities.items()}
        readings = {name: one for name, one in now.items() if one is not None}
        for problem in dict.fromkeys(one.problem for one in readings.values() if one.problem):
            st.error(said(problem), icon=":material/error:")
        known = {name: one.found[0] for name, one in readings.items()}
        draw({name: one for name, one in known.items() if one is not None}, refining)
        if refining:
            asking.standing(run, "The worker is asked.")

    asking.look(run, lambda: asking.unread(identities.values()), answers)
