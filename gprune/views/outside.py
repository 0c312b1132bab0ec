"""Draws what the app draws where no server runs: for the Python API and the command line."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import plotly.io as pio

LOOK = "plotly_white"
"""the template of figures where a person has chosen none; in the app it is that of the page, light or dark"""
_NOT_CHOSEN = ("plotly", "streamlit")


@contextmanager
def outside() -> Iterator[Any]:
    """Outside of a server: Streamlit does not warn that none runs, and its look stays its own.

    Its import makes a template the default of all figures whose colours only its pages know.

    Yields:
        The figures' declarations, `gprune.views.pictures`.
    """
    before, look = logging.root.manager.disable, pio.templates.default
    logging.disable(max(before, logging.WARNING))
    try:
        # its import would change the default while a figure is drawn
        pictures = importlib.import_module("gprune.views.pictures")
        pio.templates.default = LOOK if look in _NOT_CHOSEN else look
        yield pictures
    finally:
        pio.templates.default = look
        logging.disable(before)
