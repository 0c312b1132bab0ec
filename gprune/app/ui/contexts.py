"""Strongest tokens with the text around them, decoded by the tokenizer of a run's model."""

import streamlit as st
from tokenizers import Tokenizer

from gprune.analysis.formatting import format_signed
from gprune.analysis.inspection import Activation
from gprune.app.ui.components import ContextPassage
from gprune.models import vocabulary
from gprune.system.errors import ModelError


@st.cache_resource(max_entries=4, show_spinner=False)
def load_tokenizer(model: str, digest: str) -> Tokenizer:
    """Return a model's tokenizer, read again when the digest of its files changes."""
    try:
        return vocabulary.tokenizer(model)
    except ModelError as error:
        raise ModelError(f"the text cannot be decoded without the model's tokenizer: {error}") from error


def context_passage(tokenizer: Tokenizer, position: Activation, peak: float) -> ContextPassage:
    """Return a passage in which only the strongest token is coloured; `peak` is the value that has the full colour."""
    before, token, after = vocabulary.text_around(tokenizer, position.ids, position.at)
    return ContextPassage(
        before=before,
        token=token,
        after=after,
        value=format_signed(position.value, "#.3g").rstrip("."),
        strength=abs(position.value) / peak if peak else 0.0,
        negative=position.value < 0,
        where=f"sequence {position.sequence}, token {position.position}",
    )
