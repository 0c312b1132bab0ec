"""Lines that can be dragged: what such components share, hands, looks and how they are made.

Plain JavaScript and CSS beside this file, put before a component's own and sent along by Streamlit; nothing
is built and nothing is fetched.
"""

from pathlib import Path
from typing import Any

import streamlit as st

_HERE = Path(__file__).parent


def component(name: str, folder: Path, *scripts: str) -> Any:
    """A component, named in the whole app, whose lines are dragged by the shared hands.

    `folder` holds NAME.html and NAME.css, and the scripts: one module with the shared one.
    """
    page, own = (folder / f"{folder.name}.{kind}" for kind in ("html", "css"))
    return st.components.v2.component(
        name,
        html=_read(page),
        css=_read(_HERE / "dragging.css", own),
        js=_read(_HERE / "dragging.js", *(folder / script for script in scripts)),
    )


def snapped(value: Any, low: float, high: float, steps: int) -> float | None:
    """A value that the browser sent, as a multiple of 1 / steps; None for anything out of [low, high]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    return round(value * steps) / steps


def _read(*paths: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
