"""Whether somebody has had the tour on this cache: until then the app opens on it."""

import os
from pathlib import Path

import streamlit as st

from gprune.app.ui.work import AUTOSTART_VARIABLE
from gprune.system.files import make_folder, write_text

_OVER, _SEEN = "tour_over", "first_visit_seen"


def begins(url: str, root: str) -> bool:
    """Whether this is a first visit: of the first page, by an address that asks for nothing.

    Nothing begins by itself where GPRUNE_AUTOSTART is 0.
    """
    fresh = not st.session_state.get(_SEEN)
    st.session_state[_SEEN] = True
    wanted = os.environ.get(AUTOSTART_VARIABLE, "1") != "0"
    return fresh and wanted and not url and not len(st.query_params) and not _path(root).exists()


def end(root: str) -> None:
    """Notes that the tour was ended or skipped; where the cache cannot be written, it begins again."""
    path = _path(root)
    try:
        make_folder(path.parent)
        write_text(path, "The tour of the app was ended or skipped here.\n")
    except OSError:
        return


def _path(root: str) -> Path:
    return Path(root) / "app" / _OVER
