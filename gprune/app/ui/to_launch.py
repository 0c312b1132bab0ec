"""Sends settings of a study to the launch form: of a run, of a job that failed, of a set of thresholds."""

import streamlit as st

from gprune.app.ui import places
from gprune.study import Study

_SENT = "to_launch_study"
EDIT = "Edit settings and restart"
"""what the button is called where a run has failed"""


def send(study: Study, what: str) -> None:
    """Opens the launch form with a study's settings filled in; `what` it says there is in the form."""
    st.session_state[_SENT] = study, what
    places.turn("launch")


def sent() -> tuple[Study, str] | None:
    """What was sent and has not been taken yet, and what to say of it."""
    found: tuple[Study, str] | None = st.session_state.pop(_SENT, None)
    return found
