"""Answers: which logits does a causal language model make of final hidden states?

Families scale them, cap them or do neither, and their own forward function is the one place that says so. It
is called here with the backbone replaced by what hands our states on, so that nothing of it is said twice.
"""

import copy
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast


class _States(BaseModelOutputWithPast):
    """Final states, with what wrappers about a language model ask their backbone for besides."""

    image_hidden_states = None
    rope_deltas = None


class _Given(nn.Module):
    """Stands in for the backbone of a causal language model: gives the states that it is given."""

    def forward(self, inputs_embeds: torch.Tensor, **_: Any) -> BaseModelOutputWithPast:
        """Takes (batch, tokens, hidden) final states in the place of embeddings."""
        return _States(last_hidden_state=inputs_embeds)  # type: ignore[arg-type]


def logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """(..., vocabulary) from (..., hidden) states after the final norm, as the model's own forward has it.

    Gradients flow where they are switched on; the model stays as it is.
    """
    stand = copy.copy(model)
    # what libraries put in front of the whole model means its backbone too
    stand.__dict__.pop("forward", None)
    stand.__dict__["_modules"] = model._modules | {model.base_model_prefix: _Given()}
    flat = hidden.reshape(1, -1, hidden.shape[-1])
    found: torch.Tensor = (
        type(model).forward(stand, inputs_embeds=flat, use_cache=False, return_dict=True).logits
    )
    return found.view(*hidden.shape[:-1], -1)
