"""A causal language model that counts the tokens that pass through it, from which the cost of a stage is reported."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from gprune.models import parts


class LanguageModel:
    """A causal language model with its tokenizer: the common base of models with neurons and with experts as units.

    ``forward_tokens`` and ``backward_tokens`` count the tokens that have passed through all layers. Their increase
    during a stage, divided by the tokens of the calibration set, is the number of passes of the stage.
    """

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        """Store a frozen model in evaluation mode, and its tokenizer or None."""
        self.model = model
        self.tokenizer = tokenizer
        self.forward_tokens = 0
        self.backward_tokens = 0

    @property
    def config(self) -> Any:
        """Return the configuration of the language model."""
        return parts.language_config(self.model)

    @property
    def device(self) -> torch.device:
        """Return the device of the embeddings and of all parts outside the layers."""
        embeddings: nn.Module = self.model.get_input_embeddings()  # type: ignore[operator]
        return next(embeddings.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Return the number type of the weights."""
        return next(self.model.parameters()).dtype

    @property
    def num_embeddings(self) -> int:
        """Return the number of rows of the embedding."""
        table: Any = self.model.get_input_embeddings()  # type: ignore[operator]
        return int(table.num_embeddings)

    @property
    def is_mapped(self) -> bool:
        """Return True if the layers are on several devices or offloaded."""
        return len(getattr(self.model, "hf_device_map", ())) > 0

    def hidden_states(self, ids: torch.Tensor) -> torch.Tensor:
        """Return (batch, length, hidden) states after the final norm for (batch, length) token ids on any device.

        The LM head is not run and there is no key/value cache; gradients flow if they are enabled.
        """
        backbone = self.model.base_model
        output = backbone(input_ids=ids.to(self.device), use_cache=False)  # type: ignore[operator]
        # the last layer may be on another GPU
        states: torch.Tensor = output.last_hidden_state.to(self.device)
        self.count_forward(ids.numel())
        return states

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (..., vocabulary) logits of (..., hidden) states, scaled and capped as the family's forward does."""
        return logits(self.model, hidden).to(hidden.device)

    def count_forward(self, tokens: int) -> None:
        """Count tokens that passed through all layers by other calls than ``hidden_states``."""
        self.forward_tokens += tokens

    def count_backward(self, tokens: int) -> None:
        """Count tokens whose gradients passed back through all layers."""
        self.backward_tokens += tokens

    @contextmanager
    def restore_counts_on_error(self) -> Iterator[None]:
        """Restore the counts if the body of the context fails, so that tokens of repeated work count once."""
        counts_before = self.forward_tokens, self.backward_tokens
        try:
            yield
        except BaseException:
            self.forward_tokens, self.backward_tokens = counts_before
            raise

    @contextmanager
    def counting(self) -> Iterator[Any]:
        """Yield the model to other code and count the tokens that pass through it while the context is open."""

        def count(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], __: Any) -> None:
            ids = keywords.get("input_ids", arguments[0] if arguments else None)
            if isinstance(ids, torch.Tensor):
                self.count_forward(ids.numel())

        backbone: Any = self.model.base_model
        counter = backbone.register_forward_hook(count, with_kwargs=True)
        try:
            yield self.model
        finally:
            counter.remove()


class _States(BaseModelOutputWithPast):
    """Output of a backbone: final states, and fields that multimodal wrappers and mixtures of experts read as well."""

    image_hidden_states = image_outputs = None
    video_outputs = rope_deltas = router_logits = None


class _FixedBackbone(nn.Module):
    """Replacement for the backbone of a causal language model that returns its input as final states."""

    def forward(self, inputs_embeds: torch.Tensor, **_: Any) -> BaseModelOutputWithPast:
        """Return `inputs_embeds`, (batch, tokens, hidden), as the final states."""
        return _States(last_hidden_state=inputs_embeds)  # type: ignore[arg-type]


def logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Return the (..., vocabulary) logits that the model's own forward computes from (..., hidden) final states.

    The states are those after the final norm. Gradients flow if they are enabled; the model is not changed.
    """
    shallow_copy = copy.copy(model)
    # a `forward` on the instance, such as a hook of accelerate, is bound to the original model with its backbone
    shallow_copy.__dict__.pop("forward", None)
    shallow_copy.__dict__["_modules"] = model._modules | {model.base_model_prefix: _FixedBackbone()}
    flat, forward = hidden.reshape(1, -1, hidden.shape[-1]), type(model).forward
    output: torch.Tensor = forward(shallow_copy, inputs_embeds=flat, use_cache=False, return_dict=True).logits
    return output.view(*hidden.shape[:-1], -1)
