"""Has the Tab key leave data grids, so that a hand on the keyboard reaches the controls behind them."""

from pathlib import Path

import streamlit as st

SCRIPT = Path(__file__).with_name("leaving_grids.js").read_text(encoding="utf-8")


def install() -> None:
    """Puts the listener into the page, once however often it is drawn."""
    # the script is a file of ours and holds nothing from outside
    st.html(f"<script>{SCRIPT}</script>", unsafe_allow_javascript=True)
