"""Live preview: the perplexity of other masks on the evaluated windows, refined while a page shows it.

    source = Source(run.root, run.graph)
    identity = pool().ask(source, Question("wikitext2", "gprune", masks), owner=session)
    pool().latest(identity).verdict        # "no measurable difference"

A worker process holds the dense model (`gprune.app.preview.worker`, the only part that loads torch) and silences
units in place, without copying it. Everything else runs in the app's process.
"""

from typing import TYPE_CHECKING

from gprune.app.preview.questions import (
    MOST_WRITTEN,
    NO_DIFFERENCE,
    Answer,
    Continuation,
    Neuron,
    Passage,
    PassageActivations,
    Piece,
    PromotedTokens,
    Prompt,
    Question,
    Reading,
    TextActivations,
    TokenAnswer,
    TokenLosses,
    TokenQuestion,
    WorkerState,
    verdict,
)
from gprune.app.preview.requests import DENSE, MOST_CHARACTERS, Source, describe_left_out, repair_of, scale_roles

if TYPE_CHECKING:
    from gprune.app.preview.manager import Client


def pool() -> "Client":
    """Return the client that all sessions of this process share."""
    # imported with the first question
    from gprune.app.preview import manager

    return manager.CLIENT
