"""A passage whose tokens are coloured by how much worse a pruned model predicts them than the dense one.

The browser is sent strings and numbers and sets the strings as text of its elements, never as markup.
"""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from gprune.records import Array

_HERE = Path(__file__).parent
_COMPONENT = st.components.v2.component(
    "gprune_lens_tokens",
    html=(_HERE / "tokens.html").read_text(encoding="utf-8"),
    css=(_HERE / "tokens.css").read_text(encoding="utf-8"),
    js=(_HERE / "tokens.js").read_text(encoding="utf-8"),
)


def draw(tokens: Sequence[str], dense: Array, pruned: Array, limit: float, label: str, *, key: str) -> None:
    """Draws a passage, its tokens ready to be shown; the colours end at `limit` nats.

    `dense` and `pruned` are (tokens,) losses in nats, NaN where there is none.
    """
    _COMPONENT(key=key, data=sent(tokens, dense, pruned, limit, label), height="content")


def sent(tokens: Sequence[str], dense: Array, pruned: Array, limit: float, label: str) -> dict[str, Any]:
    """What the browser is sent: the strings, and the losses as float32."""
    losses = [np.asarray(values).astype("<f4").tobytes() for values in (dense, pruned)]
    digest = hashlib.sha256("\0".join([label, f"{limit}", *tokens]).encode("utf-8", "replace"))
    for raw in losses:
        digest.update(raw)
    return {
        "tokens": list(tokens),
        "dense": base64.b64encode(losses[0]).decode("ascii"),
        "pruned": base64.b64encode(losses[1]).decode("ascii"),
        "limit": limit,
        "label": label,
        "digest": digest.hexdigest()[:16],
    }
