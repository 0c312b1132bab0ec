"""The types of what others make, for editors and type checkers alone: nothing imports this when it runs."""

from transformers import GenerationMixin, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

__all__ = ["LanguageModel", "Tokenizer"]


class LanguageModel(PreTrainedModel, GenerationMixin):
    """A causal language model of transformers, dense or pruned."""
