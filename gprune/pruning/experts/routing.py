"""Collect the statistics of every expert on a calibration set in one forward pass of the dense model.

transformers calls one function for the experts of every family (``ALL_EXPERTS_FUNCTIONS``). While the statistics are
collected, that function is ours. It computes the experts' outputs in the layout of the family (transposed, or gate and
up projection interleaved), sums what each expert receives and returns, and keeps the tokens to which it adds most.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.models.expert_decoder import NEEDED, ExpertDecoder
from gprune.pruning.calibration.collection import assign_shards, batch_runner, require_length
from gprune.records import Tokens
from gprune.records.experts import STRONGEST, ExpertStatistics
from gprune.study import CalibrationSettings
from gprune.system.errors import ModelError
from gprune.system.progress import Progress, silent

_NAME = "gprune_statistics"
"""name of our function among the implementations of experts"""


class RoutingSums:
    """Sums over the tokens of a batch for the experts of all mixtures, by shard, and each expert's strongest tokens."""

    def __init__(self, mixtures: list[Any], shards: int) -> None:
        """Start with zeros and empty slots for the fused experts of some mixtures."""
        count, devices = int(mixtures[0].num_experts), [experts.down_proj.device for experts in mixtures]
        self.sums = [torch.zeros(4, shards, count, dtype=torch.float64, device=device) for device in devices]
        """for each mixture, (4, shards, experts): tokens, sums of g, of g * ||f(x)|| and of ||f(x)||"""
        self.strengths = [torch.full((count, STRONGEST), -torch.inf, device=device) for device in devices]
        """for each mixture, (experts, STRONGEST) float32 largest g * ||f(x)||, falling; -inf in empty slots"""
        self.positions = [torch.full((count, STRONGEST), -1, device=device) for device in devices]
        """for each mixture, (experts, STRONGEST) flat indices of their tokens; without meaning in empty slots"""
        self._index = {id(experts): index for index, experts in enumerate(mixtures)}
        self.token_shards = torch.zeros(0, shards, dtype=torch.float64)
        """(tokens, shards) 1 at the shard of each token of the current batch, all 0 if the token does not count"""
        self.first = 0
        """flat index of the first token of the current batch"""

    def add(self, experts: nn.Module, expert: int, tokens: torch.Tensor, g: torch.Tensor, output: torch.Tensor) -> None:
        """Add the (n, hidden) outputs of an expert for the tokens at (n,) indices with (n,) router weights `g`.

        Each expert is added once per batch, with rising indices.
        """
        layer = self._index[id(experts)]
        sums = self.sums[layer]
        weights, norms = g.double(), torch.linalg.vector_norm(output.float(), dim=1).double()
        values = torch.stack([torch.ones_like(norms), weights, weights * norms, norms])
        shards = self.token_shards.to(sums.device)[tokens]
        # a product of matrices, because scattered additions on a GPU have no fixed order
        sums[:, :, expert] += values @ shards
        strengths = values[2].float().masked_fill(~shards.any(dim=1), -torch.inf)
        # a stable sort, so that the first of equally strong tokens is kept
        order = strengths.sort(descending=True, stable=True).indices[:STRONGEST]
        self.strengths[layer][expert, : len(order)] = strengths[order]
        self.positions[layer][expert, : len(order)] = self.first + tokens[order]

    def merge(self, batch: "RoutingSums") -> None:
        """Add the sums of a later batch, and replace tokens by stronger ones of that batch."""
        slots = list(zip(self.strengths, self.positions, batch.strengths, batch.positions, strict=True))
        merged = [_merge_strongest(*layer) for layer in slots]
        # from here on no memory is allocated, so that a batch is never merged in part
        for sums, addition in zip(self.sums, batch.sums, strict=True):
            sums += addition
        self.strengths, self.positions = map(list, zip(*merged, strict=True))


def _merge_strongest(
    strengths: torch.Tensor, positions: torch.Tensor, new_strengths: torch.Tensor, new_positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the (experts, STRONGEST) largest strengths and their positions; at a tie, those before the new ones."""
    both, places = torch.cat([strengths, new_strengths], dim=1), torch.cat([positions, new_positions], dim=1)
    order = both.sort(dim=1, descending=True, stable=True).indices[:, :STRONGEST]
    return both.gather(1, order), places.gather(1, order)


_observers: dict[int, RoutingSums] = {}
"""the sums to which the fused experts add, by their id"""


def _observed_forward(
    self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """Return (tokens, hidden) outputs of fused experts, and add to the sums of their observer.

    `top_k_index` and `top_k_weights` are (tokens, top_k).
    """
    result, observer = torch.zeros_like(hidden_states), _observers[id(self)]

    def project(inputs: torch.Tensor, name: str, expert: int) -> torch.Tensor:
        weight, bias = getattr(self, name)[expert], getattr(self, f"{name}_bias")[expert] if self.has_bias else None
        return nn.functional.linear(inputs, weight.T if self.is_transposed else weight, bias)

    choices, weights = top_k_index.flatten(), top_k_weights.flatten()
    # the counts are the only synchronization with the device
    counts = torch.bincount(choices, minlength=self.num_experts).tolist()
    for expert, members in enumerate(choices.argsort(stable=True).split(counts)):
        if len(members):
            tokens, g = members // top_k_index.shape[1], weights[members]
            gated = self._apply_gate(project(hidden_states[tokens], "gate_up_proj", expert))
            output = project(gated, "down_proj", expert)
            observer.add(self, expert, tokens, g, output)
            result.index_add_(0, tokens, (output * g[:, None]).to(result.dtype))
    return result


@contextmanager
def observe_experts(decoder: ExpertDecoder, sums: RoutingSums) -> Iterator[None]:
    """Let the experts of a model add to `sums` while the context is open.

    Raises ModelError if the installed transformers has no interface for experts.
    """
    try:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    except ImportError as error:
        raise ModelError(
            f"statistics of experts need transformers {NEEDED} or later (installed: {version('transformers')}): "
            "update transformers"
        ) from error
    ALL_EXPERTS_FUNCTIONS.register(_NAME, _observed_forward)
    model: Any = decoder.model
    before = model.config._experts_implementation
    identities = [id(mixture.experts) for mixture in decoder.mixtures]
    _observers.update(dict.fromkeys(identities, sums))
    try:
        model.set_experts_implementation(_NAME)
        yield
    finally:
        model.set_experts_implementation(before)
        for identity in identities:
            del _observers[identity]


@torch.no_grad()
def collect_experts(
    decoder: ExpertDecoder, tokens: Tokens, settings: CalibrationSettings, on_progress: Progress = silent
) -> ExpertStatistics:
    """Run the dense model once and return the sums of every expert per shard, and its strongest tokens.

    Shards are contiguous runs of the sequences, whose order is already random. The batch size affects speed only and
    is halved when memory runs out. Positions that do not count are processed, but neither summed nor kept.

    Raises SettingsError if there are fewer sequences than shards, a sequence has more tokens than the model has
    positions, or not even one sequence fits in memory. Raises NumericsError if the output of an expert is NaN or
    infinite.
    """
    samples, length = tokens.ids.shape
    require_length(decoder, length)
    shard, mixtures = assign_shards(tokens, settings.shards), [mixture.experts for mixture in decoder.mixtures]
    is_counted = np.ones(tokens.ids.shape, dtype=bool) if tokens.counted is None else tokens.counted
    total = RoutingSums(mixtures, settings.shards)

    def measure(rows: slice) -> None:
        on_progress(rows.start, samples, "statistics of experts")
        batch = RoutingSums(mixtures, settings.shards)
        batch.first = rows.start * length
        token_shards = np.eye(settings.shards)[shard[rows]][:, None] * is_counted[rows][..., None]
        # one copy per batch, not one per expert
        batch.token_shards = torch.from_numpy(token_shards).flatten(0, 1).to(total.sums[0].device)
        with decoder.restore_counts_on_error(), observe_experts(decoder, batch):
            decoder.hidden_states(torch.from_numpy(tokens.ids[rows].astype(np.int64)))
        total.merge(batch)

    batch_runner(settings.batch, length, decoder, on_progress).run_batches(samples, measure)
    on_progress(samples, samples, "statistics of experts")
    shard_tokens = np.bincount(shard, is_counted.sum(axis=1)).astype(np.int64)
    sums = np.stack([layer.cpu().numpy() for layer in total.sums], axis=2)
    strongest = (np.stack([layer.cpu().numpy() for layer in part]) for part in (total.positions, total.strengths))
    return ExpertStatistics.of(tokens, shard_tokens, sums, *strongest)
