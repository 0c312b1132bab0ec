"""The calls of the Python API that give what a card shows, to be copied."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from gprune.views.frame.loaders import Run
from gprune.views.frame.picture import Call
from gprune.views.frame.selection import Selection

_FRAMES = {
    "ov_tiles": "run.perplexity",
    "ov_checks": "run.study",
    "ov_provenance": "run.study",
    "rd_top": 'run.drift.nlargest(50, "drift")',
    "rasa_table": "run.modules",
    "cp_table": 'run.perplexity.pivot(index="method", columns="text", values="perplexity")',
    "sx_accuracy": "run.accuracy",
    "sx_export": 'run.model("gprune")',
}
"""what cards without a figure show, as the last line of the code; any other shows something of the run"""


def code(run: Run, card: str, calls: Iterable[Call] = ()) -> str:
    """Code that ends with what a card shows.

    Args:
        run: the run that is shown.
        card: key of the card.
        calls: what draws the figures of the card.
    """
    lines = [_written(one) for one in calls] or [_FRAMES.get(card, "run")]
    return "\n".join(["import gprune", "", f"run = gprune.open({_literal(_place(run))})", *lines])


def _written(call: Call) -> str:
    """A call as Python writes it, on a run called `run`."""
    options = "".join(f", {name}={_literal(value)}" for name, value in call.options.items())
    return f"run.figure({_literal(call.name)}{options})"


def _place(run: Run) -> str:
    """How a run is found: by its name in the cache that is the default everywhere, else by its folder."""
    return os.path.join(run.root, "runs", run.name) if os.environ.get("GPRUNE_CACHE") else run.name


def _literal(value: Any) -> str:
    """A value as Python writes it, texts in double quotes."""
    if isinstance(value, Selection):
        return _literal((value.layer, value.module, value.neuron))
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)
