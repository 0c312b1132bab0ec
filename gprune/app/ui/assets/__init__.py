"""Scripts and looks that a page gets besides its elements, in files that say what each is for."""

from functools import cache
from pathlib import Path

import streamlit as st


@cache
def read(file: str) -> str:
    """The text of a file."""
    return Path(__file__).with_name(file).read_text(encoding="utf-8")


def install(script: str) -> None:
    """Puts a script, `NAME.js`, into the page, once however often it is drawn."""
    # they are files of ours and hold nothing from outside
    st.html(f"<script>{read(f'{script}.js')}</script>", unsafe_allow_javascript=True)


def look(name: str, key: str = "") -> None:
    """Puts a look, `NAME.css`, into the page; GROUND in it is that of the page, KEY a part of a selector."""
    light, dark = (st.get_option(f"theme.{ground}.backgroundColor") for ground in ("light", "dark"))
    style = read(f"{name}.css").replace("GROUND", f"light-dark({light}, {dark})").replace("KEY", key)
    st.html(f"<style>{style}</style>")
