"""Stages as they are, run under counted memory: for real on a CPU, or on the meta device at any shape.

What needs numbers, as the checks for NaN and the records, is left out: it takes next to no memory.
"""

import numpy as np
import torch
from counted_memory import CountedMemory
from made_contexts import contexts_of
from made_records import a_partition
from transformers import AutoConfig, AutoModelForCausalLM

from gprune.evaluation import perplexity
from gprune.models.decoder import Decoder
from gprune.pruning.calibration import accumulators, context_statistics
from gprune.pruning.calibration.collection import _chain_observers, assign_shards, observe_inputs
from gprune.pruning.calibration.strongest import PeakTracker
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.pruning.sparsity.batches import Teacher
from gprune.pruning.sparsity.gate_masks import GateMasks
from gprune.pruning.sparsity.mask_hooks import hook_decoder
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.passes import Passes
from gprune.pruning.sparsity.rounding import RankedUnits
from gprune.records import Tokens
from gprune.study import SparsitySettings
from gprune.system.progress import silent


def decoder_of(shape, dtype, device="meta", seed=0):
    """A decoder of a published shape: without numbers, or with small random ones."""
    values = {name: value for name, value in shape.items() if name != "model_type"}
    config = AutoConfig.for_model(shape["model_type"], **values)
    torch.manual_seed(seed)
    with torch.device(device):
        return Decoder.from_model(AutoModelForCausalLM.from_config(config, dtype=dtype))


def attention_of_a_gpu(monkeypatch):
    """On the meta device, too, attention is one kernel, which keeps no weights of it."""

    def fused(query, key, value, **_):
        group = query.shape[1] // key.shape[1]
        spread = (item if group == 1 else item.repeat_interleave(group, 1) for item in (key, value))
        return torch.ops.aten._scaled_dot_product_flash_attention(query, *spread, 0.0, True)[0]

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", fused)
    monkeypatch.setattr("transformers.masking_utils.find_packed_sequence_indices", lambda *_, **__: None)


def ids_of(decoder, sequences, length):
    if decoder.device.type == "meta":
        return torch.zeros((sequences, length), dtype=torch.long, device="meta")
    generator = torch.Generator().manual_seed(0)
    return torch.randint(decoder.model.config.vocab_size, (sequences, length), generator=generator)


def shards_of(calibration):
    ids = np.zeros((calibration.samples, 2), dtype=np.int32)
    return assign_shards(Tokens("text", "", ids, len(ids)), calibration.shards)


def statistics(decoder, study, sequences, monkeypatch):
    calibration, shape = study.calibration, decoder.shape
    shards = shards_of(calibration)[:sequences]
    ids = ids_of(decoder, sequences, calibration.length)
    with CountedMemory() as counts, torch.no_grad():
        widths = (("down_proj", shape.neurons), ("o_proj", shape.heads * shape.head_width))
        parts = [
            accumulators.ChannelMoments(name, calibration.shards, range(shape.layers), width, decoder.device)
            for name, width in widths
        ]
        strongest = PeakTracker(calibration.positions, calibration.samples, shape.layers, shape.neurons, decoder.device)
        add_both = _chain_observers(parts[0].add, strongest.add)
        with observe_inputs(decoder, range(shape.layers), add_both, parts[1].add):
            decoder.hidden_states(ids)
        prepared, peaks = [part.prepare(shards) for part in parts], strongest.prepare()
        for part, pending in zip(parts, prepared, strict=True):
            part.commit(shards, pending)
        strongest.commit(peaks)
    return counts.peak


def context_passes(decoder, study, sequences, monkeypatch):
    calibration, shape, count = study.calibration, decoder.shape, study.contexts.count
    if decoder.device.type == "meta":
        monkeypatch.setattr(context_statistics._Pass, "_require_finite", lambda *_: None)
    contexts = contexts_of(shape, count)
    ids = ids_of(decoder, sequences, calibration.length)
    shards = shards_of(calibration)[:sequences]
    with CountedMemory() as counts:
        created = context_statistics._Pass(decoder, [contexts], calibration.shards, True)
        with torch.set_grad_enabled(True), created.observing():
            created.run(ids, shards)
    return counts.peak


def learning_step(decoder, study, sequences, build_family):
    """The peak of one step of a learning, with the family of masks that it learns."""
    length = study.calibration.length
    ids = ids_of(decoder, sequences, length)
    settings = SparsitySettings(batch=sequences, epochs=1)
    with CountedMemory() as counts, hook_decoder(decoder) as hooks:
        family = build_family()
        teacher = Teacher.build(decoder, sequences, length, 1)
        rows = np.zeros((sequences, length), dtype=np.int64)
        passes = Passes(decoder, family, hooks, teacher, rows, settings, silent)
        values = torch.full((family.count,), 0.5, device=decoder.device)
        passes.run(values, np.arange(len(ids)).reshape(SUBSETS, -1), 0, 1)
    return counts.peak


def learning(decoder, study, sequences, monkeypatch):
    shape, numbers = decoder.shape, np.random.default_rng(0)
    partition = a_partition(np.tile(np.arange(shape.neurons) % 32, (shape.layers, 1)))
    scores = numbers.random((shape.layers, shape.neurons))
    heads = numbers.random((shape.layers, shape.kv_heads))

    def build_family():
        return MaskFamily.of(RankedUnits.build(shape, scores, heads, partition), decoder.device)

    return learning_step(decoder, study, sequences, build_family)


def gates(decoder, study, sequences, monkeypatch):
    return learning_step(decoder, study, sequences, lambda: GateMasks.of(decoder.shape, 0.5, 1, 1.5, decoder.device))


def evaluation(decoder, study, sequences, monkeypatch):
    ids = ids_of(decoder, sequences, study.evaluation.length)
    with CountedMemory() as counts:
        perplexity.token_losses(decoder.model, ids)
    return counts.peak


COUNTED = {
    "statistics": statistics,
    "context_statistics": context_passes,
    "learning": learning,
    "gates": gates,
    "perplexity": evaluation,
}
"""stages of which the memory counts, by kind"""
