"""Calibration and evaluation texts, and their tokens.

A text is identified by a string: a name in `named_texts()`, a local file, a dataset folder, `hub:owner/name`, or
`self:` for text sampled from the model (with the location of prompts: its answers), with options after a `#`. `draw`
returns a calibration set (section 4: 2048 sequences of 128 tokens), `draw_windows` the windows of LLM-Pruner's code,
and `stream` the tokens for perplexity. `fingerprint` and `describe` need neither a tokenizer nor a network. `bundled`
has the tokens of the demo. A stage of the run samples a `self:` text by its `recipe`, from which `choose_sampled` draws
a calibration set; `choose` draws one from any token stream.
"""

from gprune.data.texts import bundled
from gprune.data.texts.catalogue import named_texts
from gprune.data.texts.chat import RenderedChat
from gprune.data.texts.identity import describe, fingerprint, prepare
from gprune.data.texts.sampled import AnswerRecipe, Recipe, is_sampled, recipe, seed_of
from gprune.data.texts.tokens import (
    choose,
    choose_sampled,
    draw,
    draw_windows,
    pack,
    read_prompts,
    require_embedded,
    stream,
    tokens_for_calibration,
    tokens_for_windows,
)
