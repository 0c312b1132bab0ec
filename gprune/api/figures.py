"""The app's figures, drawn without the app: by the functions that its cards draw with."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from gprune.errors import SettingsError
from gprune.settings import require_choice
from gprune.untrusted import quoted
from gprune.views.frame.loaders import Run

LOOK = "plotly_white"
"""the template of figures where a person has chosen none; in the app it is that of the page, light or dark"""
_NOT_CHOSEN = ("plotly", "streamlit")


def names() -> tuple[str, ...]:
    """What figures are called."""
    with _outside():
        return tuple(sorted(_pictures().KNOWN))


def figure(run: Run, name: str, options: dict[str, Any]) -> go.Figure:
    """A figure of a run; see `gprune.Run.figure`."""
    with _outside():
        return _drawn(run, name, options)


def _drawn(run: Run, name: str, options: dict[str, Any]) -> go.Figure:
    pictures = _pictures()
    require_choice("figure", name, names())
    known = pictures.options_of(name)
    for option, value in options.items():
        if option not in known:
            listed = ", ".join(known) or "none"
            raise SettingsError(f"the figure {name} has no option {quoted(option)}; it has: {listed}")
        _require_alike(option, value, known[option])
    if "selected" in options:
        options = options | {"selected": pictures.selected(run, options["selected"])}
    # what is drawn may be shared with later calls; a reader may change what is given
    return go.Figure(pictures.KNOWN[name](run, **options).figure)


def _require_alike(option: str, value: Any, default: Any) -> None:
    """Checks that an option is of the kind that its default is.

    Raises:
        SettingsError: it is not.
    """
    kinds: dict[type, tuple[type, ...]] = {
        bool: (bool,),
        int: (int,),
        float: (int, float),
        str: (str,),
        tuple: (tuple, list),
    }
    wanted = kinds.get(type(default), ())
    if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted)):
        raise SettingsError(f"{option} must be like {quoted(default)} (got {quoted(value)})")


def _pictures() -> Any:
    """The pages' declarations."""
    from gprune.views import pictures

    return pictures


@contextmanager
def _outside() -> Iterator[None]:
    """Outside of a server: Streamlit does not warn that none runs, and its look stays its own.

    Its import makes a template the default of all figures whose colours only its pages know.
    """
    before, look = logging.root.manager.disable, pio.templates.default
    logging.disable(max(before, logging.WARNING))
    try:
        # its import would change the default while a figure is drawn
        _pictures()
        pio.templates.default = LOOK if look in _NOT_CHOSEN else look
        yield
    finally:
        pio.templates.default = look
        logging.disable(before)
