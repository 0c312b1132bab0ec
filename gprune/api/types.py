"""Types for editors and type checkers; nothing imports this module at run time."""

from transformers import GenerationMixin, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

__all__ = ["LanguageModel", "Tokenizer"]


class LanguageModel(PreTrainedModel, GenerationMixin):
    """A causal language model of transformers, dense or pruned."""
