"""What a card says where it cannot show what it is for: a result is missing, or something went wrong."""

import streamlit as st

from gprune.app.ui import job_runs, packed
from gprune.app.ui.text import said
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.system.errors import CorpusError, GpruneError, ModelError


def failed(run: Run | None, error: GpruneError) -> None:
    """Says what went wrong; of a packed run what it did not bring is no fault."""
    if run is not None and run.packed and isinstance(error, ModelError | CorpusError):
        st.info(said(packed.sentence(error)), icon=":material/inventory_2:")
    else:
        st.error(said(error), icon=":material/error:")


def missing(run: Run | None, reason: MissingResultError) -> None:
    """Says which result is missing and what makes it."""
    what = reason.title
    if run is not None and job_runs.is_live(run):
        sentence = f"Needs “{what}”, which is being computed: the card draws itself when it is there."
        st.info(sentence, icon=":material/hourglass_top:")
        return
    if run is not None and (why := packed.reason(run, what)):
        st.info(said(why), icon=":material/inventory_2:")
        return
    if run is not None and "gprune" not in run.study.methods:
        why = f"Needs “{what}”: this run compares {', '.join(run.study.methods)} and leaves GPrune out."
        st.info(said(why), icon=":material/hourglass_empty:")
        return
    st.info(f"Needs “{what}”, which this run does not have.", icon=":material/hourglass_empty:")
