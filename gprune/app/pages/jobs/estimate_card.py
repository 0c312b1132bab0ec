"""What a study of the form will take: memory and time, and whether it fits on this machine."""

from collections.abc import Iterable
from typing import Any

import pandas as pd
import streamlit as st

from gprune.app.ui import tables
from gprune.app.ui.text import said
from gprune.pipeline.estimate import ANYWAY, Forecast, judged
from gprune.pipeline.preflight import anew
from gprune.study import Study
from gprune.system.units import duration

_GIB = 2**30


def show(
    study: Study, records: Iterable[dict[str, Any]], key: str, elsewhere: bool = False
) -> tuple[str, ...] | None:
    """Shows what a whole run of a study takes, if nothing of it is there yet.

    Gives what the job is told beside the study; None where it cannot fit and nobody wants it nevertheless.
    The `records` of the cache, the latest first, tell how fast this machine is; where it runs `elsewhere`,
    that machine says itself what fits there.
    """
    found = anew(study, records)
    if found is None:
        st.caption("Memory and time are not known before the model is on this machine.")
        return ()
    verdict = judged(found)
    st.caption(f"Estimate, if nothing of it is there yet: {said(verdict.summary)}.")
    for words in verdict.warnings:
        st.warning(said(words), icon=":material/warning:")
    with st.expander("Memory and time of each stage", icon=":material/memory:"):
        tables.show(_table(found), alt="memory and time of each stage")
        st.caption(
            "By arithmetic: memory within a factor of 1.3, time from operations over the rate above. Where "
            "memory runs out, fewer sequences go through the model at a time, which changes no result."
        )
    if elsewhere:
        st.caption("That is reckoned for this machine: the node reckons for itself before it begins.")
        return ()
    if not verdict.refusal:
        return ()
    st.error(said(verdict.refusal), icon=":material/error:")
    nevertheless = st.checkbox("Start it nevertheless", key=f"{key}_anyway")
    return (ANYWAY,) if nevertheless else None


def _table(found: Forecast) -> pd.DataFrame:
    device = "GPU GiB" if found.capacity.gpu else "memory GiB"
    rows = []
    for one in found.stages:
        takes = one.need
        row = {"stage": one.title, device: round(found.on_device(takes, takes.asked) / _GIB, 1)}
        if found.capacity.gpu:
            row["memory GiB"] = round(found.on_host(takes, takes.asked) / _GIB, 1)
        row["at a time"] = str(takes.asked) if takes.setting else ""
        rows.append(row | {"time": "" if one.seconds is None else duration(one.seconds, 1)})
    return pd.DataFrame(rows)
