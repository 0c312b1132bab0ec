"""What starts the same run elsewhere: the command line, and Python."""

import streamlit as st

from gprune.app.ui import python_code
from gprune.app.ui.commands import command, in_slurm
from gprune.study import Study


def show(studies: list[Study], arguments: tuple[str, ...], slurm: bool) -> None:
    """Shows the exact command, and the same as Python."""
    st.caption("The exact command")
    words = in_slurm(*studies) if slurm else command(*studies, told=arguments)
    st.code(words, language="bash", wrap_lines=True)
    with st.popover("As Python", icon=":material/content_copy:", type="tertiary", key="launch_python"):
        same = python_code.of_study(*studies, anyway="--anyway" in arguments)
        st.code(same, language="python", wrap_lines=True)
