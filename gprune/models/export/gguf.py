"""Write a pruned model as a GGUF file for llama.cpp.

The file has the architecture ``deci``, which llama.cpp builds with another number of heads, key/value heads and FFN
neurons in every layer. Needs the package ``gguf`` (requirements-gguf.txt).
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gprune.models.export import checkpoint, ordinary
from gprune.models.export.gguf_vocabulary import Vocabulary, vocabulary_of
from gprune.models.export.writing import as_checkpoint_error, new_file, require_free_space
from gprune.models.families import FAMILIES, dense_layout, dense_type
from gprune.models.loading import load_tokenizer
from gprune.records import Array
from gprune.system.errors import CheckpointError
from gprune.system.progress import Progress, silent

ARCHITECTURE = "deci"
_STEPS = 4
Tensors = Callable[[], Iterator[tuple[str, Array]]]
"""yields every tensor under llama.cpp's name"""
_ROTATED = ("self_attn.q_proj", "self_attn.k_proj")
# Scalings of the rotary positions that divide each frequency by a constant.
_ROPE_TYPES = ("default", "linear", "llama3")


def save_gguf(folder: Path, file: Path, dtype: str = "float32", on_progress: Progress = silent) -> int:
    """Write a pruned checkpoint with its tokenizer as one GGUF file, read it back, and return its size in bytes.

    `folder` is one that ``gprune.models.export.checkpoint.save`` made; `file` must not exist; `dtype` of the matrices
    is float32 or float16, norms and biases are float32. Raises CheckpointError if the package is missing, the
    checkpoint is damaged, llama.cpp has no place for a part of the model or of its tokenizer, the target is taken,
    the disk is full, or the file does not read back as it was written. Nothing is left behind.
    """
    folder, file = Path(folder), Path(file).absolute()
    if find_spec("gguf") is None:
        raise CheckpointError(
            "GGUF files need the package gguf, which is not installed: run pip install -r "
            "requirements-gguf.txt, or pip install gguf"
        )
    on_progress(0, _STEPS, "reading the checkpoint")
    model: Any = checkpoint.load_verified(folder)
    _require_supported(model)
    factors = _rope_factors(model)
    on_progress(1, _STEPS, "reading the tokenizer")
    with as_checkpoint_error(f"the tokenizer in {str(folder)!r} cannot be written"):
        vocabulary = vocabulary_of(load_tokenizer(str(folder)), model.config.vocab_size)
    require_free_space(file, sum(p.numel() for p in model.parameters()) * np.dtype(dtype).itemsize)

    tensors = partial(_tensors, model, factors, np.dtype(dtype))
    with new_file(file) as temporary:
        on_progress(2, _STEPS, "writing")
        _write(temporary, model, vocabulary, tensors, dtype)
        on_progress(3, _STEPS, "reading back")
        _require_same(temporary, tensors)
    on_progress(_STEPS, _STEPS, "written")
    return file.stat().st_size


def _require_supported(model: Any) -> None:
    config = model.config
    family = dense_type(config.model_type)
    if not FAMILIES[family].gguf:
        remedy = "convert the folder with llama.cpp's own converter"
        if ordinary.has_own_class(model):
            padding = "export it with --padded and convert that with llama.cpp's own converter"
            remedy = "use the folder with transformers" if FAMILIES[family].text else padding
        raise CheckpointError(
            f"llama.cpp's deci architecture does not compute what a {family} model computes: {remedy}"
        )
    if config.hidden_act != "silu":
        raise CheckpointError(f"llama.cpp's deci architecture uses SiLU, the model {config.hidden_act!r}")


def _rope_factors(model: Any) -> Array | None:
    """Return (head_width / 2,) float32 divisors of the rotary frequencies, or None if they are all 1."""
    rotary, config = model.model.rotary_emb, model.config
    kind = config.rope_parameters["rope_type"]
    width = model.model.layers[0].self_attn.head_dim
    if kind not in _ROPE_TYPES or len(rotary.inv_freq) * 2 != width:
        raise CheckpointError(
            f"rotary positions of type {kind!r} over {len(rotary.inv_freq) * 2} of {width} channels cannot "
            f"be written: llama.cpp's deci architecture takes {', '.join(_ROPE_TYPES)} over all channels"
        )
    exponents = np.arange(0, width, 2, dtype=np.float64) / width
    plain = config.rope_parameters["rope_theta"] ** -exponents
    factors: Array = (plain / rotary.inv_freq.double().numpy()).astype(np.float32)
    return None if np.allclose(factors, 1, rtol=1e-5, atol=0) else factors


def _tensors(model: Any, factors: Array | None, dtype: np.dtype[Any]) -> Iterator[tuple[str, Array]]:
    import gguf

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.DECI, len(model.model.layers))
    tied = model.lm_head.weight is model.get_input_embeddings().weight
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        values = tensor.float()
        if any(f".{part}." in name for part in _ROTATED):
            values = _interleaved(values, model.model.layers[0].self_attn.head_dim)
        deci_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if deci_name is None:
            raise CheckpointError(f"llama.cpp's deci architecture has no place for {name}")
        yield deci_name, _converted(name, values, dtype)
    if factors is not None:
        yield "rope_freqs.weight", factors


def _interleaved(tensor: torch.Tensor, head_width: int) -> torch.Tensor:
    """Reorder the rows of each head, so that channels that rotate together are neighbours, as in deci."""
    halves = tensor.reshape(-1, 2, head_width // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)


def _converted(name: str, values: torch.Tensor, dtype: np.dtype[Any]) -> Array:
    array: Array = values.contiguous().numpy()
    if array.ndim == 1 or dtype == array.dtype:
        return array
    largest = float(np.abs(array).max())
    if largest > float(np.finfo(dtype).max):
        raise CheckpointError(f"{name} holds {largest:.3g}, which is beyond float16: write float32")
    return array.astype(dtype)


def _write(file: Path, model: Any, vocabulary: Vocabulary, tensors: Tensors, dtype: str) -> None:
    # tensors are written one by one after the header, so that only one is in memory twice
    import gguf

    writer = gguf.GGUFWriter(file, ARCHITECTURE)
    try:
        kinds = gguf.LlamaFileType
        writer.add_file_type(kinds.ALL_F32 if dtype == "float32" else kinds.MOSTLY_F16)
        _add_shape(writer, model)
        vocabulary.add_to(writer)
        for name, values in tensors():
            writer.add_tensor_info(name, values.shape, values.dtype, values.nbytes)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for _, values in tensors():
            writer.write_tensor_data(values)
    finally:
        writer.close()


def _add_shape(writer: Any, model: Any) -> None:
    config, layers = model.config, model.model.layers
    width = layers[0].self_attn.head_dim
    group_size = ordinary.group_size(config)
    window = getattr(config, "sliding_window", None) or config.max_position_embeddings
    writer.add_block_count(len(layers))
    # with a context of at most the window, windowed attention equals full attention
    writer.add_context_length(min(window, config.max_position_embeddings))
    writer.add_embedding_length(config.hidden_size)
    neurons, groups = ordinary.widths(model, dense_layout(model))
    writer.add_feed_forward_length(neurons)
    writer.add_head_count([group_size * count for count in groups])
    writer.add_head_count_kv(groups)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _require_same(file: Path, tensors: Tensors) -> None:
    import gguf

    tensors_in_file = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    for name, values in tensors():
        tensor = tensors_in_file.pop(name, None)
        if tensor is None or not np.array_equal(tensor.data.reshape(values.shape), values):
            raise CheckpointError(f"the tensor {name} does not read back as it was written: check the disk")
    if tensors_in_file:
        raise CheckpointError(f"the file holds tensors that were not written: {', '.join(sorted(tensors_in_file))}")
