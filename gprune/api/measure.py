"""Measure a model in memory: perplexity as in section 4 of the paper."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
    text: str | os.PathLike[str] | Sequence[str] | Sequence[Mapping[str, Any]],
    *,
    length: int = 128,
    windows: int | None = None,
    batch: int = 16,
) -> Perplexity:
    """Return the perplexity of a dense or pruned model on a text; lower is better.

    Args:
        model: causal language model of transformers, on any device; it is not changed.
        tokenizer: tokenizer of the model.
        text: name of a text, path of a file, or a list of documents or of records with messages.
        length: tokens per window; the paper uses 128 and 2048.
        windows: maximum number of windows; by default the whole text is read.
        batch: windows per forward pass; changes speed, not results.

    Returns:
        The perplexity with its standard error, and the loss of every window.

    Raises:
        SettingsError: a number is out of range, or the window is longer than the model's context.
        CorpusError: the text cannot be read, or is shorter than one window.
        NumericsError: a loss is not finite.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", progress=False)
        >>> text, tokenizer = ["A few words of some evaluation text. "] * 40, run.tokenizer
        >>> result = gprune.api.measure.perplexity(run.model(), tokenizer, text, length=16)
        >>> result.perplexity > 1, result.length
        (True, 16)
    """
    from gprune.data.texts import require_embedded
    from gprune.data.texts.tokens import name_of, text_stream
    from gprune.evaluation import perplexity as measurement
    from gprune.models.decoder import require_language_model

    require_whole(length=length, batch=batch, **({} if windows is None else {"windows": windows}))
    settings = EvaluationSettings(preset=str(length), windows=windows, batch=batch)
    require_language_model(model)
    tokens = text_stream(text, tokenizer, settings.tokens)
    embeddings: Any = model.get_input_embeddings()
    require_embedded(tokens, name_of(text), embeddings.num_embeddings, tokenizer)
    return measurement.perplexity(model, tokens, name_of(text), settings)
