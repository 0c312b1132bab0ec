"""Write a pruned model as a GGUF file for llama.cpp, with a vocabulary that splits text like the model's tokenizer.

The file has the architecture ``deci``, in which every layer has its own number of heads, key/value heads and FFN
neurons. Needs the package ``gguf`` (requirements-gguf.txt).

llama.cpp has two kinds of byte-pair encoding: SentencePiece's, with a score for each token, and the byte-level one,
with a list of merges and one of its built-in patterns for splitting text. If llama.cpp would split text differently,
the tokenizer is refused, because a model that gets wrong tokens gives wrong answers without an error.
``gguf.SpecialVocab`` guesses from the files which tokens are added to a text. It does not store that a token is not
added, and llama.cpp then adds it by default. Here the added tokens are determined by encoding a text.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gprune.models.export import checkpoint, ordinary
from gprune.models.export.writing import as_checkpoint_error, new_file, require_free_space
from gprune.models.families import FAMILIES, dense_layout, dense_type
from gprune.models.loading import load_tokenizer
from gprune.records import Array
from gprune.system import safe_parsing
from gprune.system.errors import CheckpointError
from gprune.system.progress import Progress, silent

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""GGUF's codes of the types of tokens"""
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
_NEVER_MERGED = -1e6  # score of a token that no merge produces
# parts of the regular expressions by which tokenizers split text
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
_LINES = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+|"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_PATTERNS = {
    (_CONTRACTIONS + _WORD + r"\p{N}{1,3}|" + _LINES, True): "llama-bpe",
    (_CONTRACTIONS + _WORD + r"\p{N}{1,3}|" + _LINES, False): "smaug-bpe",
    (_CONTRACTIONS + _WORD + r"\p{N}|" + _LINES, False): "qwen2",
    (
        f"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|"
        r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        True,
    ): "tekken",
}
"""llama.cpp's names of pre-tokenizers, by regular expression and by `ignore_merges`: True if a piece of text that is a
token is not split by merges"""
ARCHITECTURE = "deci"
_STEPS = 4  # of the progress report
TensorReader = Callable[[], Iterator[tuple[str, Array]]]
"""function that yields the name in llama.cpp and the values of every tensor"""
_ROTATED = ("self_attn.q_proj", "self_attn.k_proj")
# types of rotary scaling that divide each frequency by a constant
_ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer in llama.cpp's terms."""

    model: str
    """``llama`` (SentencePiece) or ``gpt2`` (byte-level)"""
    pre_tokenizer: str
    """llama.cpp's name of how text is split before merging"""
    tokens: list[str]
    """text of every token, in order of its id"""
    types: list[int]
    """GGUF's type of every token"""
    scores: list[float] | None
    """priorities of the merges of SentencePiece: higher scores are merged first; None if byte-level"""
    merges: list[str] | None
    """pairs that a byte-level tokenizer merges, in order, each separated by a space; None for SentencePiece"""
    special: dict[str, int] = field(default_factory=dict)
    """ids of the tokens bos, eos, unk and pad"""
    flags: dict[str, bool] = field(default_factory=dict)
    """values of add_bos_token, add_eos_token and add_space_prefix"""
    chat_template: str | list[dict[str, str]] | None = None
    """Jinja template of a conversation, or several with name and template; llama.cpp uses the one named `default`"""

    def add_to(self, writer: Any) -> None:
        """Add every field to a ``gguf.GGUFWriter``."""
        writer.add_tokenizer_model(self.model)
        writer.add_tokenizer_pre(self.pre_tokenizer)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if self.scores is not None:
            writer.add_token_scores(self.scores)
        if self.merges:
            writer.add_token_merges(self.merges)
        for name, token_id in self.special.items():
            getattr(writer, f"add_{name}_token_id")(token_id)
        for name, value in self.flags.items():
            getattr(writer, f"add_{name}")(value)
        if self.chat_template is not None:
            writer.add_chat_template(self.chat_template)


def vocabulary_of(tokenizer: Any, size: int) -> Vocabulary:
    """Convert a tokenizer of transformers that has a ``backend_tokenizer``.

    `size` is the number of rows of the model's embedding; rows without a token become unused tokens. Raises
    CheckpointError if llama.cpp would split text differently, or the embedding has too few rows.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise CheckpointError(f"a {type(tokenizer).__name__} has no tokenizer.json, which is needed to write it")
    values = safe_parsing.json_object(backend.to_str(), "the tokenizer", finite=False)
    model = values["model"]
    if model["type"] != "BPE" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise CheckpointError(
            f"the tokenizer is of type {model['type']!r}, but only byte-pair encodings without prefixes or suffixes of "
            "subwords can be written for llama.cpp"
        )
    merges = [tuple(pair.split(" ", 1) if isinstance(pair, str) else pair) for pair in model["merges"]]
    tokens, types = _tokens_and_types(values, size)
    common: dict[str, Any] = {
        "special": _special_ids(tokenizer),
        "flags": _added_tokens(tokenizer),
        "chat_template": _chat_template(tokenizer),
    }
    # SentencePiece's encodings represent unknown characters by their bytes
    if not model.get("byte_fallback"):
        pairs = [" ".join(pair) for pair in merges]
        return Vocabulary("gpt2", _find_pre_tokenizer(values), tokens, types, None, pairs, **common)
    scores = _scores(tokens, types, merges)
    common["flags"]["add_space_prefix"] = _adds_space_prefix(values)
    return Vocabulary("llama", "default", tokens, types, scores, None, **common)


def _tokens_and_types(values: dict[str, Any], size: int) -> tuple[list[str], list[int]]:
    """Return text and type of every token; embedding rows without a token are unused tokens."""
    model = values["model"]
    texts = {token_id: text for text, token_id in model["vocab"].items()}
    types = dict.fromkeys(texts, NORMAL)
    for added_token in values["added_tokens"]:
        texts[added_token["id"]] = added_token["content"]
        types[added_token["id"]] = CONTROL if added_token["special"] else USER_DEFINED
    if max(texts) >= size:
        raise CheckpointError(
            f"the tokenizer has {max(texts) + 1} tokens, the model {size}: token {texts[max(texts)]} has no embedding. "
            "Remove it from the tokenizer, or prune the model whose embeddings were resized to the tokenizer"
        )
    for token_id, text in texts.items():
        if model.get("byte_fallback") and _BYTE_TOKEN.fullmatch(text):
            types[token_id] = BYTE
        elif text == model.get("unk_token"):
            types[token_id] = UNKNOWN
    tokens = [texts.get(token_id, f"[PAD{token_id}]") for token_id in range(size)]
    return tokens, [types.get(token_id, UNUSED) for token_id in range(size)]


def _scores(tokens: list[str], types: list[int], merges: list[tuple[str, ...]]) -> list[float]:
    """Return the score of every token: minus the index of the first merge that produces it.

    llama.cpp merges any two neighbours whose joined text is a token. The tokenizer must therefore merge all such pairs;
    otherwise CheckpointError is raised.
    """
    normal = {text for text, token_type in zip(tokens, types, strict=True) if token_type == NORMAL}
    pairs = set(merges)
    rank: dict[str, int] = {}
    for index, pair in enumerate(merges):
        rank.setdefault("".join(pair), index)
    for text in normal:
        splits = ((text[:at], text[at:]) for at in range(1, len(text)))
        unmerged = next((s for s in splits if s[0] in normal and s[1] in normal and s not in pairs), None)
        if unmerged is not None:
            raise CheckpointError(
                f"the tokenizer does not merge {unmerged[0]!r} and {unmerged[1]!r}, which llama.cpp would merge "
                f"into its token {text!r}: the model would get different tokens"
            )
    return [-float(rank[text]) if text in rank else _NEVER_MERGED for text in tokens]


def _find_pre_tokenizer(values: dict[str, Any]) -> str:
    """Return llama.cpp's name of the pre-tokenizer that splits text like a byte-level tokenizer.

    `values` is the content of its tokenizer.json. Raises CheckpointError if llama.cpp has none.
    """
    pre_tokenizer = values.get("pre_tokenizer") or {}
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    ignores_merges = bool(values["model"].get("ignore_merges"))
    step_types = [step.get("type") for step in steps]
    is_byte_level = (values.get("normalizer") or {"type": "NFC"})["type"] == "NFC"
    is_byte_level &= step_types[-1:] == ["ByteLevel"] and not steps[-1].get("add_prefix_space")
    has_regex = is_byte_level and steps[-1].get("use_regex", True)
    if has_regex and step_types == ["ByteLevel"] and not ignores_merges:
        return "gpt-2"
    if has_regex and step_types == ["Digits", "ByteLevel"] and steps[0]["individual_digits"]:
        return "smollm"
    if is_byte_level and not has_regex and step_types == ["Split", "ByteLevel"]:
        name = _PATTERNS.get((steps[0]["pattern"].get("Regex", ""), ignores_merges))
        if name is not None and (steps[0]["behavior"], steps[0]["invert"]) == ("Isolated", False):
            return name
    raise CheckpointError(
        f"the tokenizer splits text by {' and '.join(map(str, step_types))} in a way that llama.cpp does not "
        f"support; it supports {', '.join(['gpt-2', 'smollm', *_PATTERNS.values()])}"
    )


def _adds_space_prefix(values: dict[str, Any]) -> bool:
    normalizer, pre_tokenizer = values.get("normalizer") or {}, values.get("pre_tokenizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    if pre_tokenizer.get("type") == "Metaspace":
        return pre_tokenizer.get("prepend_scheme", "always") != "never"
    return any(step.get("type") == "Prepend" for step in steps)


def _special_ids(tokenizer: Any) -> dict[str, int]:
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "unk", "pad")}
    return {name: int(token_id) for name, token_id in ids.items() if token_id is not None}


def _added_tokens(tokenizer: Any) -> dict[str, bool]:
    ids = tokenizer("a").input_ids
    return {"add_bos_token": ids[:1] == [tokenizer.bos_token_id], "add_eos_token": ids[-1:] == [tokenizer.eos_token_id]}


def _chat_template(tokenizer: Any) -> str | list[dict[str, str]] | None:
    templates = getattr(tokenizer, "chat_template", None)
    if isinstance(templates, dict):
        return [{"name": name, "template": template} for name, template in templates.items()] or None
    return templates if isinstance(templates, str) else None


def save_gguf(folder: Path, file: Path, dtype: str = "float32", on_progress: Progress = silent) -> int:
    """Write a pruned checkpoint with its tokenizer as one GGUF file, read it back, and return its size in bytes.

    `folder` was written by ``gprune.models.export.checkpoint.save``; `file` must not exist. `dtype` is the number type
    of the matrices, float32 or float16; norms and biases are float32. Raises CheckpointError if the package is missing,
    the checkpoint is damaged, llama.cpp does not support a part of the model or its tokenizer, `file` exists, the disk
    is full, or the file that is read back differs. After an error no file is left behind.
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
            remedy = "use the folder with transformers" if FAMILIES[family].inner_types else padding
        raise CheckpointError(
            f"llama.cpp's deci architecture does not compute what a {family} model computes: {remedy}"
        )
    if config.hidden_act != "silu":
        raise CheckpointError(f"llama.cpp's deci architecture uses SiLU, but the model uses {config.hidden_act!r}")


def _rope_factors(model: Any) -> Array | None:
    """Return (head_width / 2,) float32 divisors of the rotary frequencies, or None if they are all 1."""
    rotary, config = model.model.rotary_emb, model.config
    rope_type = config.rope_parameters["rope_type"]
    width = model.model.layers[0].self_attn.head_dim
    if rope_type not in _ROPE_TYPES or len(rotary.inv_freq) * 2 != width:
        raise CheckpointError(
            f"rotary positions of type {rope_type!r} over {len(rotary.inv_freq) * 2} of {width} channels cannot "
            f"be written: llama.cpp's deci architecture supports {', '.join(_ROPE_TYPES)} over all channels"
        )
    exponents = np.arange(0, width, 2, dtype=np.float64) / width
    unscaled_frequencies = config.rope_parameters["rope_theta"] ** -exponents
    factors: Array = (unscaled_frequencies / rotary.inv_freq.double().numpy()).astype(np.float32)
    return None if np.allclose(factors, 1, rtol=1e-5, atol=0) else factors


def _tensors(model: Any, factors: Array | None, dtype: np.dtype[Any]) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of a model by their names in llama.cpp; `factors` are those of `_rope_factors`."""
    import gguf

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.DECI, len(model.model.layers))
    tied = model.lm_head.weight is model.get_input_embeddings().weight
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        values = tensor.float()
        if any(f".{part}." in name for part in _ROTATED):
            values = _interleave(values, model.model.layers[0].self_attn.head_dim)
        deci_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if deci_name is None:
            raise CheckpointError(f"llama.cpp's deci architecture does not support the tensor {name}")
        yield deci_name, _convert_tensor(name, values, dtype)
    if factors is not None:
        yield "rope_freqs.weight", factors


def _interleave(tensor: torch.Tensor, head_width: int) -> torch.Tensor:
    """Return the rows of each head in llama.cpp's order, in which the two channels that rotate together are neighbours.

    In the order of transformers they are half a head apart.
    """
    halves = tensor.reshape(-1, 2, head_width // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)


def _convert_tensor(name: str, values: torch.Tensor, dtype: np.dtype[Any]) -> Array:
    """Return a tensor as an array, in the number type `dtype` unless it is a norm or bias."""
    array: Array = values.contiguous().numpy()
    if array.ndim == 1 or dtype == array.dtype:
        return array
    largest = float(np.abs(array).max())
    if largest > float(np.finfo(dtype).max):
        raise CheckpointError(f"{name} holds {largest:.3g}, which float16 cannot represent: use float32")
    return array.astype(dtype)


def _write(file: Path, model: Any, vocabulary: Vocabulary, tensors: TensorReader, dtype: str) -> None:
    # tensors are converted one by one, first for the header and then for the data, so that only one copy is in memory
    import gguf

    writer = gguf.GGUFWriter(file, ARCHITECTURE)
    try:
        file_types = gguf.LlamaFileType
        writer.add_file_type(file_types.ALL_F32 if dtype == "float32" else file_types.MOSTLY_F16)
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
    # llama.cpp's architecture has full attention; it equals windowed attention if the context fits into the window
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


def _require_same(file: Path, tensors: TensorReader) -> None:
    """Raise CheckpointError if a file does not have exactly these tensors."""
    import gguf

    tensors_in_file = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    for name, values in tensors():
        tensor = tensors_in_file.pop(name, None)
        if tensor is None or not np.array_equal(tensor.data.reshape(values.shape), values):
            raise CheckpointError(f"the tensor {name} in the file differs from the written one: check the disk")
    if tensors_in_file:
        raise CheckpointError(f"the file holds tensors that were not written: {', '.join(sorted(tensors_in_file))}")
