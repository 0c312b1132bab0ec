"""What the worker says of a neuron of the dense model, refined while one looks."""

from collections.abc import Callable, Mapping

import streamlit as st

from gprune.app import preview
from gprune.app.preview import DENSE, Question, Reading, Source
from gprune.app.preview.token_answers import Found, What
from gprune.app.ui import asking
from gprune.app.ui.text import said
from gprune.pipeline.runs.opened import Run


def show(
    run: Run, asked: Mapping[str, What], key: str, draw: Callable[[dict[str, Found], bool], None]
) -> None:
    """Asks by name, and has drawn what is known of the answers; `draw` is told whether more will come.

    `key` is one a card. Raises StoreError where the run lacks what is asked about.
    """
    source = Source(run.root, run.graph)
    identities = {
        name: preview.pool().read(source, what, [Question("", DENSE)], asking.owner(f"{key} {name}"))
        for name, what in asked.items()
    }

    def now() -> dict[str, Reading | None]:
        return {name: preview.pool().reading(identity) for name, identity in identities.items()}

    def answers(refining: bool) -> None:
        readings = {name: one for name, one in now().items() if one is not None}
        for problem in dict.fromkeys(one.problem for one in readings.values() if one.problem):
            st.error(said(problem), icon=":material/error:")
        known = {name: one.found[0] for name, one in readings.items()}
        draw({name: one for name, one in known.items() if one is not None}, refining)
        if refining:
            asking.standing(run, "The worker is asked.")

    asking.look(run, lambda: any(one is None or one.progress == "open" for one in now().values()), answers)
