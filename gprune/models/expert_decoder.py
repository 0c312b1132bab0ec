"""Access the mixtures of a mixture-of-experts model by the same names in every family of ``expert_families``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from gprune.models.expert_families import COUNTS, GROUPS, TOP_K, ExpertLayout
from gprune.models.families import expert_layout_of
from gprune.models.language_model import LanguageModel
from gprune.models.parts import language_config, untie_separate_head
from gprune.records.experts import ExpertShape
from gprune.system.errors import ModelError

NEEDED = "5.0"
"""version of transformers that added fused experts and their interface"""


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """The mixture of a decoder layer."""

    block: nn.Module
    """module with router, experts and, in some families, shared experts"""
    router: nn.Module
    experts: Any
    """fused experts of transformers: `gate_up_proj` and `down_proj` have the expert as first axis"""

    def expert_tensors(self) -> list[tuple[nn.Module, str, int]]:
        """Return owner, name and axis of every parameter and buffer of router and experts with one entry per expert.

        The correction bias of ERNIE 4.5, (1, experts), has the experts on its second axis.
        """
        count = int(self.experts.num_experts)
        tensors = []
        for owner in (*self.router.modules(), *self.experts.modules()):
            for name, tensor in (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)):
                axis = 1 if tensor.shape[0] == 1 and tensor.ndim > 1 else 0
                if tensor.shape[axis] != count:
                    raise ModelError(
                        f"{name} of a router with {count} experts has shape {tuple(tensor.shape)}, which this version "
                        "cannot prune: use a version of transformers with which this model was tested"
                    )
                tensors.append((owner, name, axis))
        return tensors


class ExpertDecoder(LanguageModel):
    """A mixture-of-experts model with its tokenizer; create it with ``from_model``."""

    def __init__(self, model: nn.Module, tokenizer: Any, shape: ExpertShape, layout: ExpertLayout) -> None:
        """Store the checked arguments of ``from_model``."""
        super().__init__(model, tokenizer)
        self.shape = shape
        self.layout = layout

    @classmethod
    def from_model(cls, model: nn.Module, tokenizer: Any = None) -> ExpertDecoder:
        """Wrap a mixture-of-experts model after checking that its experts can be pruned.

        The model is put in evaluation mode and frozen. Raises ModelError if the family is not supported, or the
        installed transformers stores its experts separately.
        """
        model_type = getattr(getattr(model, "config", None), "model_type", None)
        layout = expert_layout_of(model_type, f"the model {type(model).__name__}")
        untie_separate_head(model)
        return cls(model.eval().requires_grad_(False), tokenizer, _expert_shape(model, layout), layout)

    @property
    def offloaded(self) -> bool:
        """Return True if weights are offloaded: kept in CPU memory or in files until they are needed."""
        return self.device.type != "meta" and any(parameter.is_meta for parameter in self.model.parameters())

    @property
    def mixtures(self) -> list[Mixture]:
        """Return the mixtures, first to last layer."""
        return list(mixtures_of(self.model, self.layout).values())


def mixtures_of(model: nn.Module, layout: ExpertLayout) -> dict[int, Mixture]:
    """Return the mixtures of a model by the index of their layer.

    Raises ModelError if no layer has fused experts, as in transformers before 5.0.
    """
    mixtures = {}
    for index, layer in enumerate(model.get_submodule(layout.layers).children()):
        block = layer.get_submodule(layout.mixture)
        experts: Any = getattr(block, "experts", None)
        if experts is not None and isinstance(getattr(experts, "down_proj", None), torch.Tensor):
            mixtures[index] = Mixture(block, block.get_submodule(layout.router), experts)
    if not mixtures:
        raise ModelError(
            f"no layer of the {layout.label} model has fused experts: use a model with experts, and transformers "
            f"{NEEDED} or later (installed: {version('transformers')})"
        )
    return mixtures


def _expert_shape(model: nn.Module, layout: ExpertLayout) -> ExpertShape:
    mixtures = mixtures_of(model, layout)
    counts = {int(mixture.experts.num_experts) for mixture in mixtures.values()}
    if len(counts) > 1:
        raise ModelError(
            f"its mixtures have {min(counts)} to {max(counts)} experts: choose a model with equal mixtures"
        )
    config, count = language_config(model), counts.pop()
    tensors = [getattr(owner, name) for owner, name, _ in next(iter(mixtures.values())).expert_tensors()]
    per_expert = sum(tensor.numel() // count for tensor in tensors if isinstance(tensor, nn.Parameter))
    groups, top_groups = (int(getattr(config, name, None) or 1) for name in GROUPS)
    return ExpertShape(
        layers=tuple(mixtures),
        experts=count,
        top_k=next(int(getattr(config, name)) for name in TOP_K if hasattr(config, name)),
        groups=groups,
        top_groups=top_groups,
        expert_parameters=per_expert,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def set_expert_count(model: Any, layout: ExpertLayout, count: int) -> None:
    """Set the number of experts in the configuration of a model and in the modules of its mixtures."""
    config = language_config(model)
    for name in {*COUNTS} & {*config.to_dict()}:
        setattr(config, name, count)
    for mixture in mixtures_of(model, layout).values():
        for module in (mixture.block, mixture.experts, *mixture.router.modules()):
            for name in ("num_experts", "out_features"):
                if hasattr(module, name):
                    setattr(module, name, count)
