"""Scripts and styles of the folder `static`, the picker of a text, text that the browser draws, and buttons.

Scripts and styles are plain JavaScript and CSS, which Streamlit sends with the page; they need no build step and load
nothing. Strings of a text are sent to the browser as data and become text content there, never mark-up.

An event that the browser sends while a page is being drawn, such as the first event of a chart, restarts the script. A
click that the first drawing had received would be lost. The callback of a button is not interrupted, so it stores the
click until the script draws the button.
"""

import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from gprune.app.ui import address
from gprune.app.ui.text import escape_error
from gprune.records import Array
from gprune.system.errors import GpruneError

FOLDER = Path(__file__).with_name("static")


@cache
def read_asset(file: str) -> str:
    """Return the text of a file in the folder `static`."""
    return (FOLDER / file).read_text(encoding="utf-8")


def install(script: str) -> None:
    """Put a script, `NAME.js`, into the page; repeated drawing installs it only once."""
    # scripts are files of this project and contain no input
    st.html(f"<script>{read_asset(f'{script}.js')}</script>", unsafe_allow_javascript=True)


def add_style(name: str) -> None:
    """Put a style, `NAME.css`, into the page; the word GROUND in it becomes the background colour of the page."""
    light, dark = (st.get_option(f"theme.{mode}.backgroundColor") for mode in ("light", "dark"))
    style = read_asset(f"{name}.css").replace("GROUND", f"light-dark({light}, {dark})")
    st.html(f"<style>{style}</style>")


_PASSAGES = st.components.v2.component(
    "gprune_firing", html='<ol class="passages"></ol>\n', css=read_asset("passages.css"), js=read_asset("passages.js")
)
_LOSSES = st.components.v2.component(
    "gprune_lens_tokens",
    html='<div class="lens-tokens"><div class="legend"><strong class="label"></strong><span class="better"></span>'
    '<i class="ramp"></i><span class="worse"></span><span class="unit"></span></div>'
    '<div class="passage" tabindex="0" role="group"></div></div>\n',
    css=read_asset("tokens.css"),
    js=read_asset("tokens.js"),
)


@st.cache_data(show_spinner=False)
def known_texts() -> dict[str, str]:
    """Return the named texts, with a line that describes each."""
    from gprune.data.texts import named_texts

    return named_texts()


def pick_text(label: str, key: str, default: str, optional: bool = True) -> str:
    """Draw the picker of a text; return its name or path as typed, empty if none is chosen."""
    options = list(dict.fromkeys(filter(None, [default, st.session_state.get(key), *known_texts()])))
    # a widget with a default cannot be emptied, so an optional field gets its default from the session
    state, default_key = st.session_state, f"{key}_default"
    if optional and (key not in state or state.get(default_key, default) != default):
        state[key] = default or None
    state[default_key] = default
    chosen = st.selectbox(
        label,
        options,
        index=None if optional or not default else options.index(default),
        key=key,
        accept_new_options=True,
        placeholder="choose, or type a path" if optional else "choose or type",
        help="A known name, a file, or a dataset folder; options follow a #. With wikitext=/data/wiki.txt, the pages "
        "call the file wikitext. “self:” is text that the model generates, as in self:#seed=1, and self:prompts.jsonl "
        "its answers to prompts.",
    )
    return (chosen or "").strip()


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a passage, or several tokens that share a character."""

    text: str
    value: str
    """activation with its sign"""
    strength: float
    """magnitude as a share of the strongest activation on any text, in [0, 1]"""
    negative: bool
    peak: bool
    """True for the strongest token of its sequence"""


@dataclass(frozen=True, slots=True)
class ContextPassage:
    """The position of a top activation, with the text around it."""

    before: str
    token: str
    after: str
    value: str
    """activation with its sign"""
    strength: float
    """magnitude as a share of the strongest activation on any text, in [0, 1]"""
    negative: bool
    where: str
    """sequence and position, in words"""
    tokens: tuple[Token, ...] = ()
    """all tokens, if each has its own colour; they replace `before`, `token` and `after`"""


def draw_passages(passages: Sequence[ContextPassage], color: str, alt: str, key: str) -> None:
    """Draw passages below each other, in the text's hue as #RRGGBB; `alt` describes them."""
    data = {"passages": [asdict(passage) for passage in passages], "color": color, "alt": alt}
    _PASSAGES(key=key, data=data, height="content")


def draw_losses(tokens: Sequence[str], dense: Array, pruned: Array, limit: float, label: str, *, key: str) -> None:
    """Draw a passage whose tokens are coloured by their loss against the dense model, up to `limit` nats.

    `dense` and `pruned` are (tokens,) losses in nats, NaN if there is none.
    """
    _LOSSES(key=key, data=losses_data(tokens, dense, pruned, limit, label), height="content")


def draw_divergences(tokens: Sequence[str], divergences: Array, limit: float, label: str, *, key: str) -> None:
    """Draw an answer whose tokens are coloured by their divergence from the dense model, up to `limit` nats.

    `divergences` are (tokens,) KL in nats. An answer with the limit 0 has no colours and no legend.
    """
    data = losses_data(tokens, np.zeros(len(tokens)), divergences, limit, label)
    legend = {"better": "0", "worse": _format_limit(limit), "unit": "nats, KL"} if limit else {}
    data["legend"] = {"label": label} | (legend or dict.fromkeys(("better", "worse", "unit"), ""))
    data["ramp"] = f"linear-gradient(to right, transparent, rgb(224 130 20 / {58 if limit else 0}%))"
    _LOSSES(key=key, data=data | {"measure": "KL to the dense model"}, height="content")


def _format_limit(limit: float) -> str:
    return f"{limit:.{2 if limit < 1 else 1}f}"


def losses_data(tokens: Sequence[str], dense: Array, pruned: Array, limit: float, label: str) -> dict[str, Any]:
    """Return the data for the browser: the strings, the legend, and the losses as float32."""
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
        "legend": {
            "label": label,
            "better": f"better −{_format_limit(limit)}",
            "worse": f"+{_format_limit(limit)} worse",
            "unit": "nats, pruned − dense",
        },
        "ramp": "",
        "digest": digest.hexdigest()[:16],
    }


_PRESSED, _PLACE = "pressed", "pressed_page"
"""session keys: the keys of clicked buttons that are not drawn yet, and the place that has these buttons"""


def forget_clicks(place: str) -> None:
    """Forget clicks on another place; called before a place is drawn."""
    if st.session_state.get(_PLACE) != place:
        st.session_state[_PLACE], st.session_state[_PRESSED] = place, set()


def button(label: str, key: str, **options: Any) -> bool:
    """Draw a button; return True if it was clicked since it was last drawn."""
    st.button(label, key=key, on_click=_store_click, args=(key,), **options)
    keys: set[str] = st.session_state.get(_PRESSED, set())
    is_pressed = key in keys
    keys.discard(key)
    return is_pressed


def _store_click(key: str) -> None:
    address.ignore_sent_address()
    st.session_state.setdefault(_PRESSED, set()).add(key)


def action_button(
    label: str, key: str, icon: str, action: Callable[..., object], *arguments: object, **options: Any
) -> bool:
    """Draw a button that calls `action` before the page is drawn anew; return True if it was clicked.

    `icon` is a name of Material Symbols, or empty; `options` are those of `st.button`.
    """
    icon_name = f":material/{icon}:" if icon else None
    return bool(st.button(label, key=key, icon=icon_name, on_click=action, args=arguments, **options))  # type: ignore[arg-type]


@contextlib.contextmanager
def show_errors() -> Iterator[None]:
    """Show the message of a GpruneError that the block raises."""
    try:
        yield
    except GpruneError as error:
        st.error(escape_error(error), icon=":material/error:")


def attempt(key: str, action: Callable[..., object], *arguments: object) -> None:
    """Run the action of a button; `show_error` with the same key shows the message of its GpruneError."""
    try:
        action(*arguments)
    except GpruneError as error:
        st.session_state[f"{key}_error"] = str(error)


def show_error(key: str) -> None:
    """Show the error of the last `attempt` with this key, once."""
    if problem := st.session_state.pop(f"{key}_error", ""):
        st.error(escape_error(problem), icon=":material/error:")
