"""The app's figures, drawn without the app: by the functions that its cards draw with."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from gprune.errors import SettingsError
from gprune.settings import require_choice
from gprune.untrusted import quoted
from gprune.views.frame.loaders import Run


def names() -> tuple[str, ...]:
    """What figures are called."""
    with _outside() as pictures:
        return tuple(sorted(pictures.KNOWN))


def figure(run: Run, name: str, options: dict[str, Any]) -> go.Figure:
    """A figure of a run; see `gprune.Run.figure`."""
    with _outside() as pictures:
        return _drawn(pictures, run, name, options)


def _drawn(pictures: Any, run: Run, name: str, options: dict[str, Any]) -> go.Figure:
    require_choice("figure", name, tuple(sorted(pictures.KNOWN)))
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


def _outside() -> Any:
    """What lets figures be drawn without a server; its import loads Streamlit."""
    from gprune.views import outside

    return outside.outside()
