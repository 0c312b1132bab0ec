"""Collect statistics of every neuron in each context, for token-weighted FLAP and FANG (section 4).

In a forward pass of the dense model, every token is assigned to a context in every layer, and the inputs of
down_proj are reduced to moments per shard and context. Any token-weighted mean and variance follows exactly from
these moments. A backward pass adds the affinity between contexts and neurons, the mean of
|input * gradient of the loss|, by which FANG groups neurons.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.models.decoder import Decoder
from gprune.models.devices import Pending, commit
from gprune.pruning.calibration.collection import assign_shards, batch_runner, hook_inputs
from gprune.pruning.calibration.contexts import ContextLookup
from gprune.pruning.calibration.gradients import loss_gradient
from gprune.records import Array, Contexts, ContextStatistics, Tokens
from gprune.system.errors import MethodError, NumericsError, SettingsError
from gprune.system.progress import Progress, silent


def collect_contexts(
    decoder: Decoder,
    tokens: Tokens,
    contexts: Sequence[Contexts],
    shards: int,
    batch: int,
    gradient: bool,
    on_progress: Progress = silent,
) -> list[ContextStatistics]:
    """Run the dense model once and return the moments of every neuron per shard and context, float64.

    Returns one record for each of the `contexts`. Shards are contiguous runs of the sequences. `batch` affects speed
    only and is halved when memory runs out. `gradient` requests the affinity, which needs a backward pass; the
    loss of a sequence is the sum over its predictions. Without it the affinity is zero and the LM head is not run.

    Raises:
        SettingsError: there are fewer sequences than shards, not even one sequence fits in memory, or `gradient` is
            set and layers are offloaded.
        MethodError: `gradient` is set and one sequence does not fit in memory.
        NumericsError: an activation or a gradient is NaN or infinite.
    """
    samples, shard = len(tokens.ids), assign_shards(tokens, shards)
    if gradient:
        decoder.require_whole("the affinity of contexts and neurons")
    pass_ = _Pass(decoder, contexts, shards, gradient)

    def measure(rows: slice) -> None:
        on_progress(rows.start, samples, "context statistics")
        pass_.run(torch.from_numpy(tokens.ids[rows].astype(np.int64)), shard[rows], tokens.counted_in(rows))

    # if memory runs out in the backward pass, only the methods that need the gradient fail
    kind = MethodError if gradient else SettingsError
    with torch.set_grad_enabled(gradient), pass_.observing():
        batch_runner(batch, tokens.ids.shape[1], decoder, on_progress, kind).run_batches(samples, measure)
    on_progress(samples, samples, "context statistics")
    return pass_.records(tokens.text)


class GroupMoments:
    """Moments of the inputs of down_proj for each shard, layer and context.

    A batch is reduced in float32 about the mean of each group, with a correction for the rounding of that mean.
    Batches are merged in float64 by Chan's rule. Means far from zero and outliers in other contexts therefore do not
    reduce the accuracy.
    """

    def __init__(self, shards: int, layers: int, contexts: int, channels: int, device: torch.device) -> None:
        """Start with zero sums."""
        self.tokens = torch.zeros(shards, layers, contexts, dtype=torch.float64, device=device)
        self.mean = torch.zeros(shards, layers, contexts, channels, dtype=torch.float64, device=device)
        self.moment = torch.zeros_like(self.mean)

    def prepare(self, layer: int, shards: slice, inputs: torch.Tensor, members: torch.Tensor) -> Pending:
        """Return the updates for one layer's (tokens, channels) inputs of any float type; apply none.

        `members` is (groups, tokens) float32, 1 if a token belongs to a group. A group is a pair of one of the
        batch's `shards` and a context, sorted by shard.
        """
        values = inputs.float()
        tokens = members.sum(dim=1, dtype=torch.float64)[:, None]
        count = tokens.clamp(min=1)
        # matrix products instead of scattered sums, which are not deterministic on a GPU; each token is in one group
        centre = (members @ values) / count.float()
        centred = values - centre[members.argmax(dim=0)]
        # the rounding error of the float32 mean
        correction = (members @ centred).double() / count
        moment = (members @ centred.square_()).double() - tokens * correction**2
        shape = self.mean[shards, layer].shape
        mean = (centre.double() + correction).view(shape)
        return self._merge_moments(layer, shards, tokens.view(*shape[:-1], 1), mean, moment.view(shape))

    def _merge_moments(
        self, layer: int, shards: slice, tokens: torch.Tensor, mean: torch.Tensor, moment: torch.Tensor
    ) -> Pending:
        """Return the updates that merge the groups of a layer by Chan's rule; an empty group changes nothing.

        `tokens` is (shards, contexts, 1), `mean` and `moment` are (shards, contexts, channels).
        """
        count, old_mean, old_moment = (part[shards, layer] for part in (self.tokens, self.mean, self.moment))
        old_count = count.unsqueeze(-1)
        new_count = (old_count + tokens).clamp(min=1)
        difference = mean - old_mean
        return [
            (old_mean, old_mean + difference * (tokens / new_count)),
            (old_moment, old_moment + (moment + difference**2 * (old_count * tokens / new_count))),
            (count, count + tokens.squeeze(-1)),
        ]


class _ContextSums:
    """Running sums for one set of contexts, and the groups of the tokens in the current batch.

    A group is a pair of a shard and a context, see `GroupMoments.prepare`.
    """

    def __init__(self, decoder: Decoder, contexts: Contexts, shards: int) -> None:
        shape = decoder.shape
        self.text, self.lookup = contexts.text, ContextLookup(decoder, contexts)
        self.contexts = contexts.centroids.shape[1]
        self.moments = GroupMoments(shards, shape.layers, self.contexts, shape.neurons, decoder.device)
        self.affinity = torch.zeros_like(self.moments.mean[0])
        self.members: dict[int, torch.Tensor] = {}

    def assign(
        self, layer: int, inputs: torch.Tensor, shards: int, shard_of_token: torch.Tensor, counted: torch.Tensor
    ) -> None:
        """Assign the tokens of a batch to groups by their (tokens, hidden) FFN inputs.

        `shards` is the number of shards in the batch, `shard_of_token` (tokens,) their indices from 0. `counted` is
        (tokens,) float32, 0 for tokens that belong to no group.
        """
        group = shard_of_token * self.contexts + self.lookup.labels(layer, inputs)
        members = torch.zeros(shards * self.contexts, len(group), device=group.device)
        self.members[layer] = members.scatter_(0, group[None], counted[None])

    def affinity_change(self, layer: int, effect: torch.Tensor, scale: torch.Tensor) -> Pending:
        """Return the update for (tokens, neurons) |input * gradient| of a layer; the loss was multiplied by `scale`."""
        total = (self.members[layer] @ effect).double() / scale
        affinity = self.affinity[layer]
        return [(affinity, affinity + total.view(-1, *affinity.shape).sum(dim=0))]

    def record(self, text: str, layer_change: torch.Tensor) -> ContextStatistics:
        """Return the statistics as arrays on the CPU; `layer_change` (layers,) is the mean of 1 - cosine similarity."""
        moments = self.moments
        tokens = moments.tokens.sum(dim=0).clamp(min=1).unsqueeze(-1)
        return ContextStatistics(
            text=text,
            contexts=self.text,
            tokens=moments.tokens.cpu().numpy(),
            mean=moments.mean.cpu().numpy(),
            moment=moments.moment.clamp(min=0).cpu().numpy(),
            affinity=(self.affinity / tokens).cpu().numpy(),
            layer_change=layer_change.cpu().numpy(),
        )


class _Pass:
    """State of a pass over a calibration set: the running sums, and the current batch."""

    def __init__(self, decoder: Decoder, contexts: Sequence[Contexts], shards: int, gradient: bool) -> None:
        shape, device = decoder.shape, decoder.device
        self.decoder, self.gradient = decoder, gradient
        self.sums = [_ContextSums(decoder, context, shards) for context in contexts]
        self.layer_change = torch.zeros(shape.layers, dtype=torch.float64, device=device)
        self.tokens = 0
        # shards of the current batch (also by token, from 0), and the factor by which its loss is multiplied
        self.shards = slice(0)
        self.shard_of_token = torch.empty(0, dtype=torch.int64, device=device)
        # 1 for every token of the current batch that counts, else 0
        self.counted = torch.empty(0, device=device)
        self.scale = torch.ones((), dtype=torch.float64, device=device)
        # updates are applied only after forward and backward, because memory may run out in between
        self.pending: Pending = []
        self.is_finite: dict[int, torch.Tensor] = {}

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Register the hooks on layers, FFN inputs and neurons while the context is open."""
        decoder = self.decoder
        layers = range(decoder.shape.layers)
        with ExitStack() as stack:
            stack.enter_context(hook_inputs({decoder.entrance(i): self._context_hook(i) for i in layers}))
            stack.enter_context(hook_inputs({decoder.down_proj(i): self._moments_hook(i) for i in layers}))
            for i in layers:
                hook = decoder.layers[i].register_forward_hook(self._layer_change_hook(i), with_kwargs=True)
                stack.callback(hook.remove)
            yield

    def run(self, ids: torch.Tensor, shard: Array, counted: Array | None = None) -> None:
        """Run a batch of (sequences, length) ids forward and, if requested, backward.

        `counted` is (sequences, length) bool, True for the positions that count; None if all count.
        """
        flags = torch.ones(ids.shape, device=self.decoder.device) if counted is None else torch.tensor(counted)
        self.counted = flags.to(self.decoder.device, torch.float32).flatten()
        self.shards = slice(int(shard[0]), int(shard[-1]) + 1)
        local = torch.from_numpy(shard - shard[0]).repeat_interleave(ids.shape[1])
        self.shard_of_token = local.to(self.decoder.device)
        self._clear_batch()
        with self.decoder.restore_counts_on_error():
            hidden = self.decoder.hidden_states(ids)
            self._require_finite("input of down_proj")
            if self.gradient:
                self._backward(hidden, ids, counted)
        commit(self.pending)
        self.tokens += ids.numel() if counted is None else int(counted.sum())
        self._clear_batch()

    def records(self, text: str) -> list[ContextStatistics]:
        """Return the statistics under each set of contexts as arrays on the CPU."""
        return [sums.record(text, self.layer_change / self.tokens) for sums in self.sums]

    def _clear_batch(self) -> None:
        """Drop the intermediate values of a batch."""
        self.pending = []
        for sums in self.sums:
            sums.members = {}

    def _backward(self, hidden: torch.Tensor, ids: torch.Tensor, counted: Array | None) -> None:
        gradient, self.scale = loss_gradient(self.decoder, hidden, ids, counted)
        hidden.backward(gradient)
        self.decoder.count_backward(ids.numel())
        self._require_finite("gradient at the input of down_proj")

    def _context_hook(self, layer: int) -> Callable[..., None]:
        def hook(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            inputs = arguments[0].detach().flatten(0, 1).to(self.decoder.device)
            shards = self.shards.stop - self.shards.start
            for sums in self.sums:
                sums.assign(layer, inputs, shards, self.shard_of_token, self.counted)

        return hook

    def _moments_hook(self, layer: int) -> Callable[..., tuple[torch.Tensor] | None]:
        """Return a pre-hook of down_proj that queues the moments of its inputs, and tracks their gradient if needed."""

        def hook(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor] | None:
            inputs = arguments[0].detach().to(self.decoder.device)
            for sums in self.sums:
                members = sums.members[layer]
                self._queue_changes(layer, sums.moments.prepare(layer, self.shards, inputs.flatten(0, 1), members))
            if not self.gradient:
                return None
            # nothing below the neurons of layer 0 needs a gradient, so the graph begins there
            tracked = arguments[0].detach().requires_grad_() if layer == 0 else arguments[0]
            tracked.register_hook(self._affinity_hook(layer, inputs))
            return (tracked,)

        return hook

    def _affinity_hook(self, layer: int, inputs: torch.Tensor) -> Callable[[torch.Tensor], None]:
        @torch.no_grad()
        def hook(gradient: torch.Tensor) -> None:
            # converted to float32 first, because a product of float16 numbers would underflow
            effect = gradient.to(inputs.device).float().mul(inputs).abs_().flatten(0, 1)
            for sums in self.sums:
                self._queue_changes(layer, sums.affinity_change(layer, effect, self.scale))

        return hook

    def _layer_change_hook(self, layer: int) -> Callable[..., None]:
        @torch.no_grad()
        def hook(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            inputs = arguments[0] if arguments else keywords["hidden_states"]
            outputs = output[0] if isinstance(output, tuple) else output
            inputs, outputs = (states.to(self.decoder.device).float() for states in (inputs, outputs))
            distance = (1 - nn.functional.cosine_similarity(inputs, outputs, dim=-1)).flatten() * self.counted
            change = self.layer_change[layer]
            self.pending.append((change, change + distance.sum(dtype=torch.float64)))

        return hook

    def _queue_changes(self, layer: int, pending: Pending) -> None:
        """Queue the updates of a layer and record whether they are finite; `_require_finite` checks that later."""
        self.pending += pending
        self.is_finite[layer] = torch.isfinite(pending[0][1]).all()

    def _require_finite(self, quantity: str) -> None:
        """Raise NumericsError for the first layer with NaN or infinity, or for the last such layer of gradients."""
        finite = torch.stack([self.is_finite[layer] for layer in range(self.decoder.shape.layers)])
        faulty_layers = [layer for layer, is_finite in enumerate(finite.tolist()) if not is_finite]
        if not faulty_layers:
            return
        layer = faulty_layers[-1] if quantity.startswith("gradient") else faulty_layers[0]
        raise NumericsError.of(f"the {quantity} in layer {layer}")
