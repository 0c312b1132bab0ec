"""The live preview: what other masks would cost on the evaluated windows, refining while one looks.

    source = Source(run.root, run.graph)
    asked = pool().ask(source, Question("wikitext2", "gprune", masks), owner=session)
    pool().latest(asked).verdict        # "no measurable difference"

A worker process holds the model (`gprune.bench.worker`, the only module here that loads torch) and silences
units in place, without copying it. Everything else runs in the app's process.
"""

from gprune.preview.answer import NO_DIFFERENCE, Answer, State, verdict
from gprune.preview.asking import Pool, pool
from gprune.preview.own_text import Held, OwnText, OwnTexts, own_texts
from gprune.preview.question import DENSE, Question, Source
from gprune.preview.readings import Passage, Piece, Prompt, Read, Reading, Written

__all__ = [
    "DENSE",
    "NO_DIFFERENCE",
    "Answer",
    "Held",
    "OwnText",
    "OwnTexts",
    "Passage",
    "Piece",
    "Pool",
    "Prompt",
    "Question",
    "Read",
    "Reading",
    "Source",
    "State",
    "Written",
    "own_texts",
    "pool",
    "verdict",
]
