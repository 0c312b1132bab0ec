"""Answers: what is a calibration or evaluation text, and which tokens does it give?

A text is named by one string: a name of `known()`, a local file, a dataset folder, `hub:owner/name`, or
`self:` for what the model writes itself, with options after a `#`. `draw` makes a calibration set of it
(section 4: 2048 sequences of 128 tokens), `draw_windows` what LLM-Pruner's code cuts from one, and `stream`
what perplexity is measured on; `fingerprint` and `describe` answer without a tokenizer and without a network.
`bundled` has the tokens of the demo. What the model writes is made in a run, as `recipe` says; `choose` makes a
calibration set of any stream.
"""

from gprune.data.texts import bundled
from gprune.data.texts.catalogue import TextEntry, known
from gprune.data.texts.identity import describe, fingerprint, prepare
from gprune.data.texts.sampled import Recipe, is_sampled, recipe, seed_of
from gprune.data.texts.source import by_amount
from gprune.data.texts.tokens import choose, cut_from, draw, draw_windows, drawn_from, missing, require_embedded, stream
