"""Fills the launch form with the settings of a study, widget by widget."""

from typing import Any

import streamlit as st

from gprune.app.pages.jobs import comparison_form, settings_form
from gprune.app.server.server_options import trusts_code
from gprune.app.ui import buttons, places
from gprune.app.ui.text import plain
from gprune.study import Study, profiles
from gprune.study.demo import DEMOS
from gprune.study.methods import choices, metric_choices

MORE = "launch_more_drawn"
"""whether the further settings are drawn, which a closed form that nobody has filled does without"""


def take() -> bool:
    """Fills the form, before it is drawn, with a study that was sent to it; whether there was one."""
    found = places.sent_to_launch()
    if found is None:
        return False
    study, what = found
    st.session_state.update(values(study))
    told = f"{what} in the form below: change what you want, then Start."
    st.success(plain(told), icon=":material/check_circle:")
    return True


def bundled() -> None:
    """The buttons that fill the form with a bundled study."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Fill in a bundled study:", width="content")
        for name, made in DEMOS.items():
            study = made()
            buttons.act(
                study.name, f"launch_fill_{name}", "", _fill, name, type="tertiary",
                help=f"A: {study.primary}; B: {study.auxiliary}. As a command: run {name}",
            )  # fmt: skip


def _fill(name: str) -> None:
    # before the widgets are drawn
    st.session_state.update(values(DEMOS[name]()))


def values(study: Study) -> dict[str, Any]:
    """What every widget of the form holds where it makes a study, by the widget's key."""
    plain, form = study.to_dict(), "launch_demo" if study.model == "demo" else "launch"
    flat = {f"{name}.{field}": one for name in settings_form.SECTIONS for field, one in plain[name].items()}
    asked = {key: (plain | flat).get(field) for field, key in comparison_form.KEYS.items()}
    own = {
        # the form's own texts to begin with are the demo's, whoever has filled it
        "launch_owner": "",
        MORE: True,
        "launch_profile": profiles.PROPOSED,
        "launch_controls": False,
        "launch_seeds": "",
        "launch_substitute": study.substitute or None,
        "launch_metric": study.metric if study.metric in metric_choices() else "flap",
        "launch_methods": [name for name in study.methods if name in choices()],
        "launch_speed": study.evaluation.speed,
        "launch_device": study.device,
        "launch_dtype": study.dtype,
        "launch_trust": study.trust_remote_code and trusts_code(),
    }
    further = {f"{form}_{field}": settings_form.held(field, one) for field, one in flat.items()}
    values = (asked | own).items()
    return further | {key: list(one) if isinstance(one, tuple) else one for key, one in values}
