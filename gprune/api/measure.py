"""Measures a model that somebody holds: `gprune.api.measure.perplexity`, the measure of section 4."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gprune.study.settings import EvaluationSettings, require_whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from gprune.api.types import Tokenizer
    from gprune.records import Perplexity

__all__ = ["perplexity"]


def perplexity(
    model: PreTrainedModel,
    tokenizer: Tokenizer,
    text: str | os.PathLike[str] | Sequence[str],
    *,
    length: int = 128,
    windows: int | None = None,
    batch: int = 16,
) -> Perplexity:
    """How well a model, dense or pruned, predicts a text; lower is better.

    Args:
        model: a causal language model of transformers, on any device; it stays as it is.
        tokenizer: its tokenizer.
        text: a text by its name, a file, or the documents themselves as a list of strings.
        length: tokens of a window; the paper has 128 and 2048.
        windows: windows measured at most; all of the text where left out.
        batch: windows of one pass; changes speed, not results.

    Gives the perplexity with its standard error and the loss of every window. Raises SettingsError where a
    number is out of range, or the window longer than the model can read, CorpusError where the text cannot be
    read, or is shorter than one window, NumericsError where a loss is not finite.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", progress=False)
        >>> text, tokenizer = ["Some words of a text that is measured on. "] * 40, run.tokenizer
        >>> found = gprune.api.measure.perplexity(run.model(), tokenizer, text, length=16)
        >>> found.perplexity > 1, found.length
        (True, 16)
    """
    from gprune.data.texts import require_embedded
    from gprune.data.texts.tokenize import name_of, stream
    from gprune.evaluation import perplexity as measurement
    from gprune.models.decoder import require_language_model

    require_whole(length=length, batch=batch, **({} if windows is None else {"windows": windows}))
    settings = EvaluationSettings(preset=str(length), windows=windows, batch=batch)
    require_language_model(model)
    tokens = stream(text, tokenizer, settings.tokens)
    embeddings: Any = model.get_input_embeddings()
    require_embedded(tokens, name_of(text), embeddings.num_embeddings, tokenizer)
    return measurement.perplexity(model, tokens, name_of(text), settings)
