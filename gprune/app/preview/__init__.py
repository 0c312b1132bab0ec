"""The live preview: what other masks would cost on the evaluated windows, refining while one looks.

    source = Source(run.root, run.graph)
    asked = pool().ask(source, Question("wikitext2", "gprune", masks), owner=session)
    pool().latest(asked).verdict        # "no measurable difference"

A worker process holds the model (`gprune.app.preview.worker.worker`, the only module here that loads torch)
and silences units in place, without copying it. Everything else runs in the app's process.
"""

from gprune.app.preview.client import Client, pool
from gprune.app.preview.request import DENSE, Question, Source, left_out, repair_of, scale_roles
from gprune.app.preview.response import NO_DIFFERENCE, Answer, State, verdict
from gprune.app.preview.token_answers import (
    Counted,
    Direction,
    Fired,
    Firing,
    Passage,
    Piece,
    Promoted,
    Prompt,
    Read,
    Reading,
    Spread,
    Written,
)
