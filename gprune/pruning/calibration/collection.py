"""Collect activation statistics of the dense model on a calibration set in one forward pass (section 3).

Hooks reduce the inputs of down_proj and o_proj separately for disjoint shards of the sequences. Any half of the set
can then be scored without another pass. The LM head is not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.models.devices import AdaptiveBatches
from gprune.models.language_model import LanguageModel
from gprune.pruning.calibration.accumulators import ChannelMoments, require_finite
from gprune.pruning.calibration.strongest import PeakTracker
from gprune.records import ActivationStatistics, Array, StrongestPositions, Tokens
from gprune.study import CalibrationSettings
from gprune.system.errors import GpruneError, SettingsError
from gprune.system.progress import Progress, silent

# remedy in the error if not even one sequence fits in memory
_SHORTER = "set a smaller calibration.length, dtype bfloat16, or a device with more memory"

Observer = Callable[[int, torch.Tensor], None]
"""called with a layer's index and the (sequences, length, channels) inputs of one of its projections"""


def batch_runner(
    batch: int, length: int, decoder: LanguageModel, on_progress: Progress, kind: type[GpruneError] = SettingsError
) -> AdaptiveBatches:
    """Return a runner that halves the batch of calibration sequences when memory runs out; `kind` is its error."""
    return AdaptiveBatches(batch, length, "calibration.batch", _SHORTER, decoder.device, on_progress, kind)


@torch.no_grad()
def collect(
    decoder: Decoder,
    tokens: Tokens,
    settings: CalibrationSettings,
    on_progress: Progress = silent,
    strongest: PeakTracker | None = None,
) -> ActivationStatistics:
    """Run the dense model once and return the moments of every FFN and attention channel per shard.

    Shards are contiguous runs of the sequences, whose order is already random. The batch size affects speed only and
    is halved when memory runs out. `strongest` records the strongest positions in the same pass.
    Raises SettingsError if there are fewer sequences than shards, a sequence has more tokens than the model has
    positions, or not even one sequence fits in memory. Raises NumericsError if an activation is NaN or infinite.
    """
    samples, length = tokens.ids.shape
    require_length(decoder, length)
    shard = assign_shards(tokens, settings.shards)
    ffn, attention = _accumulators(decoder, settings)

    def measure(rows: slice) -> None:
        on_progress(rows.start, samples, "activation statistics")
        for part in (ffn, attention) if strongest is None else (ffn, attention, strongest):
            part.counted = tokens.counted_in(rows)
        with decoder.restore_counts_on_error():
            decoder.hidden_states(torch.from_numpy(tokens.ids[rows].astype(np.int64)))
            updates = [part.prepare(shard[rows]) for part in (ffn, attention)]
            peaks = strongest.prepare() if strongest is not None else []
        for part, pending in zip((ffn, attention), updates, strict=True):
            part.commit(shard[rows], pending)
        if strongest is not None:
            strongest.commit(peaks)
        # each shard is checked once, when it is complete, because the check synchronizes with the device
        for index in range(shard[rows.start], shard[rows.stop] if rows.stop < samples else shard[-1] + 1):
            require_finite(attention, ffn, index)

    observer = _chain_observers(ffn.add, strongest.add) if strongest is not None else ffn.add
    with observe_inputs(decoder, range(decoder.shape.layers), observer, attention.add):
        batch_runner(settings.batch, length, decoder, on_progress).run_batches(samples, measure)
    on_progress(samples, samples, "activation statistics")
    return _build_record(tokens, np.bincount(shard), ffn, attention)


def track_strongest(decoder: Decoder, tokens: Tokens, count: int) -> PeakTracker:
    """Return a tracker of each FFN neuron's `count` strongest positions, to be passed to `collect`."""
    shape = decoder.shape
    return PeakTracker(count, len(tokens.ids), shape.layers, shape.neurons, decoder.device)


@torch.no_grad()
def collect_strongest(
    decoder: Decoder,
    tokens: Tokens,
    settings: CalibrationSettings,
    count: int,
    on_progress: Progress = silent,
) -> StrongestPositions:
    """Run the dense model once and return only the strongest positions; see `collect` for batches and errors."""
    samples, length = tokens.ids.shape
    require_length(decoder, length)
    strongest = track_strongest(decoder, tokens, count)

    def measure(rows: slice) -> None:
        on_progress(rows.start, samples, "strongest positions")
        strongest.counted = tokens.counted_in(rows)
        with decoder.restore_counts_on_error():
            decoder.hidden_states(torch.from_numpy(tokens.ids[rows].astype(np.int64)))
            pending = strongest.prepare()
        strongest.commit(pending)

    layers = range(decoder.shape.layers)
    with observe_inputs(decoder, layers, strongest.add, lambda *_: None):
        batch_runner(settings.batch, length, decoder, on_progress).run_batches(samples, measure)
    on_progress(samples, samples, "strongest positions")
    return strongest.result(tokens)


def require_length(decoder: LanguageModel, length: int) -> None:
    """Raise SettingsError if a sequence has more tokens than the model has positions."""
    positions = getattr(decoder.config, "max_position_embeddings", None)
    if positions is not None and length > positions:
        raise SettingsError(
            f"sequences of {length} tokens do not fit the model, which has {positions} positions: "
            f"set calibration.length to {positions} or less"
        )


def _chain_observers(first: Observer, second: Observer) -> Observer:
    """Return an observer that calls both."""

    def observer(layer: int, inputs: torch.Tensor) -> None:
        first(layer, inputs)
        second(layer, inputs)

    return observer


def assign_shards(tokens: Tokens, shards: int) -> Array:
    """Return the (samples,) shard index of each sequence: contiguous runs whose sizes differ by at most one.

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
    """Return a context in which observers receive the inputs of down_proj and o_proj, on the decoder's device."""

    def make_hook(observer: Observer, layer: int) -> Callable[..., None]:
        return lambda _, arguments: observer(layer, arguments[0].to(decoder.device))

    hooks = {decoder.down_proj(layer): make_hook(ffn, layer) for layer in layers}
    return hook_inputs(hooks | {decoder.o_proj(layer): make_hook(attention, layer) for layer in layers})


@contextmanager
def hook_inputs(hooks: dict[torch.nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Register a forward pre-hook on each module while the context is open."""
    with ExitStack() as stack:
        for module, hook in hooks.items():
            stack.callback(module.register_forward_pre_hook(hook).remove)
        yield


def _accumulators(decoder: Decoder, settings: CalibrationSettings) -> tuple[ChannelMoments, ChannelMoments]:
    """Return empty moments of the inputs of all down_proj and of all o_proj."""
    shape, released = decoder.shape, settings.flap_variant == "released"
    widths = (("down_proj", shape.neurons), ("o_proj", shape.heads * shape.head_width))
    ffn, attention = (
        ChannelMoments(name, settings.shards, range(shape.layers), channels, decoder.device, released)
        for name, channels in widths
    )
    return ffn, attention


def _build_record(
    tokens: Tokens, shard_samples: Array, ffn: ChannelMoments, attention: ChannelMoments
) -> ActivationStatistics:
    first, second = ffn.result(), attention.result()
    return ActivationStatistics(
        text=tokens.text,
        fingerprint=tokens.fingerprint,
        shard_samples=shard_samples.astype(np.int64),
        shard_tokens=np.array(ffn.tokens, dtype=np.int64),
        ffn_mean=first.mean,
        ffn_moment=first.moment,
        ffn_energy=first.energy,
        attention_mean=second.mean,
        attention_moment=second.moment,
        attention_energy=second.energy,
        ffn_released_fluctuation=first.released_fluctuation,
        attention_released_fluctuation=second.released_fluctuation,
    )
