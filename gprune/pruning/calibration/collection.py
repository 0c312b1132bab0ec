"""Activation statistics of the dense model on a calibration set, from one pass (section 3).

The inputs of down_proj and o_proj are reduced as they pass by, for disjoint shards of the sequences, so that
any half of the set can be scored later without another pass. The LM head is never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.models.oom_backoff import AdaptiveBatches
from gprune.pruning.calibration.accumulators import ChannelMoments, require_finite
from gprune.pruning.calibration.strongest import Strongest
from gprune.records import ActivationStatistics, Array, StrongestPositions, Tokens
from gprune.study import CalibrationSettings
from gprune.system.errors import GpruneError, SettingsError
from gprune.system.progress import Progress, silent

# the remedy if not even one sequence fits
_SHORTER = "set a smaller calibration.length, dtype bfloat16, or a device with more memory"

Observer = Callable[[int, torch.Tensor], None]
"""Told of a layer's index and the (sequences, length, channels) inputs of one of its projections."""


def in_batches(
    batch: int, length: int, decoder: Decoder, on_progress: Progress, kind: type[GpruneError] = SettingsError
) -> AdaptiveBatches:
    """Return a batch runner for calibration sequences that halves the batch when memory runs out."""
    return AdaptiveBatches(batch, length, "calibration.batch", _SHORTER, decoder.device, on_progress, kind)


@torch.no_grad()
def collect(
    decoder: Decoder,
    tokens: Tokens,
    settings: CalibrationSettings,
    on_progress: Progress = silent,
    strongest: Strongest | None = None,
) -> ActivationStatistics:
    """Run the unmodified model once and keep the moments of every FFN and attention channel per shard.

    Shards are contiguous runs of the sequences, whose order is random already; the batch size changes speed
    and nothing else, and is halved where memory runs out. `strongest` keeps strongest positions on the way.
    Raises SettingsError if there are fewer sequences than shards, they are longer than the model's
    positions, or not even one of them fits in memory. Raises NumericsError if an activation is NaN or infinite.
    """
    samples, length = tokens.ids.shape
    _require_positions(decoder, length)
    shard = shard_of(tokens, settings.shards)
    ffn, attention = _accumulators(decoder, settings)

    def measure(rows: slice) -> None:
        on_progress(rows.start, samples, "activation statistics")
        with decoder.restore_counts_on_error():
            decoder.hidden_states(torch.from_numpy(tokens.ids[rows].astype(np.int64)))
            updates = [part.prepare(shard[rows]) for part in (ffn, attention)]
            peaks = strongest.prepare() if strongest is not None else []
        for part, pending in zip((ffn, attention), updates, strict=True):
            part.commit(shard[rows], pending)
        if strongest is not None:
            strongest.commit(peaks)
        # each shard is checked once, when it is complete, because the check synchronizes with the device
        for complete in range(shard[rows.start], shard[rows.stop] if rows.stop < samples else shard[-1] + 1):
            require_finite(attention, ffn, complete)

    observer = _both(ffn.add, strongest.add) if strongest is not None else ffn.add
    with observe_inputs(decoder, range(decoder.shape.layers), observer, attention.add):
        in_batches(settings.batch, length, decoder, on_progress).run_batches(samples, measure)
    on_progress(samples, samples, "activation statistics")
    return _record(tokens, np.bincount(shard), length, ffn, attention)


def strongest_of(decoder: Decoder, tokens: Tokens, count: int) -> Strongest:
    """Keep each FFN neuron's `count` strongest positions while `collect` goes over a calibration set."""
    shape = decoder.shape
    return Strongest(count, len(tokens.ids), shape.layers, shape.neurons, decoder.device)


@torch.no_grad()
def collect_strongest(
    decoder: Decoder,
    tokens: Tokens,
    settings: CalibrationSettings,
    count: int,
    on_progress: Progress = silent,
) -> StrongestPositions:
    """Run the unmodified model once for the strongest positions alone, if the moments exist already.

    Batches and errors are those of `collect`.
    """
    samples, length = tokens.ids.shape
    _require_positions(decoder, length)
    strongest = strongest_of(decoder, tokens, count)

    def measure(rows: slice) -> None:
        on_progress(rows.start, samples, "strongest positions")
        with decoder.restore_counts_on_error():
            decoder.hidden_states(torch.from_numpy(tokens.ids[rows].astype(np.int64)))
            pending = strongest.prepare()
        strongest.commit(pending)

    layers = range(decoder.shape.layers)
    with observe_inputs(decoder, layers, strongest.add, lambda *_: None):
        in_batches(settings.batch, length, decoder, on_progress).run_batches(samples, measure)
    on_progress(samples, samples, "strongest positions")
    return strongest.result(tokens)


def _require_positions(decoder: Decoder, length: int) -> None:
    positions = getattr(decoder.config, "max_position_embeddings", None)
    if positions is not None and length > positions:
        raise SettingsError(
            f"sequences of {length} tokens do not fit the model, which has {positions} positions: "
            f"set calibration.length to {positions} or less"
        )


def _both(first: Observer, second: Observer) -> Observer:
    def observer(layer: int, inputs: torch.Tensor) -> None:
        first(layer, inputs)
        second(layer, inputs)

    return observer


def shard_of(tokens: Tokens, shards: int) -> Array:
    """Return (samples,) shard of each sequence: contiguous runs whose sizes differ by one at most.

    Raises SettingsError if there are fewer sequences than shards.
    """
    samples = len(tokens.ids)
    if samples < shards:
        raise SettingsError(
            f"{tokens.text!r} gives {samples} sequences for {shards} shards: "
            "choose fewer shards (calibration.shards) or more samples"
        )
    sizes = [len(run) for run in np.array_split(np.arange(samples), shards)]
    return np.repeat(np.arange(shards), sizes)


def observe_inputs(decoder: Decoder, layers: range, ffn: Observer, attention: Observer) -> AbstractContextManager[None]:
    """Show the inputs of down_proj and o_proj of some layers to observers, on the decoder's device, while open."""

    def observing(observer: Observer, layer: int) -> Callable[..., None]:
        return lambda _, arguments: observer(layer, arguments[0].to(decoder.device))

    hooks = {decoder.down_proj(layer): observing(ffn, layer) for layer in layers}
    return hook_inputs(hooks | {decoder.o_proj(layer): observing(attention, layer) for layer in layers})


@contextmanager
def hook_inputs(hooks: dict[torch.nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Call a hook before each of some modules, with its positional inputs, while the context is open."""
    with ExitStack() as undone:
        for module, hook in hooks.items():
            undone.callback(module.register_forward_pre_hook(hook).remove)
        yield


def _accumulators(decoder: Decoder, settings: CalibrationSettings) -> tuple[ChannelMoments, ChannelMoments]:
    shape, released = decoder.shape, settings.flap_variant == "released"
    widths = (("down_proj", shape.neurons), ("o_proj", shape.heads * shape.head_width))
    ffn, attention = (
        ChannelMoments(name, settings.shards, range(shape.layers), channels, decoder.device, released)
        for name, channels in widths
    )
    return ffn, attention


def _record(
    tokens: Tokens, shard_samples: Array, length: int, ffn: ChannelMoments, attention: ChannelMoments
) -> ActivationStatistics:
    first, second = ffn.result(), attention.result()
    return ActivationStatistics(
        text=tokens.text,
        fingerprint=tokens.fingerprint,
        shard_samples=shard_samples.astype(np.int64),
        shard_tokens=shard_samples.astype(np.int64) * length,
        ffn_mean=first.mean,
        ffn_moment=first.moment,
        ffn_energy=first.energy,
        attention_mean=second.mean,
        attention_moment=second.moment,
        attention_energy=second.energy,
        ffn_released_fluctuation=first.released_fluctuation,
        attention_released_fluctuation=second.released_fluctuation,
    )
