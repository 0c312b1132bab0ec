"""Read names, shapes and types of the tensors in safetensors files, without torch and without reading values.

A safetensors file starts with eight bytes that hold the length of the JSON header that follows.
"""

import functools
import math
import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gprune.system import safe_parsing
from gprune.system.errors import ModelError

_LENGTH_BYTES = 8
_HEAD = "lm_head.weight"
_EMBEDDING = "embed_tokens.weight"
_TYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
# bytes of each tensor that are compared at a time
_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class Tensor:
    """Description of a tensor in the header of its file."""

    shape: tuple[int, ...]
    bytes: int
    """size of its data in bytes"""
    dtype: str
    """number type in the notation of safetensors, such as BF16"""
    file: Path
    start: int
    """position of its first byte in the file"""

    @property
    def numbers(self) -> int:
        """Return the number of its elements."""
        return math.prod(self.shape)


def without_tied_head(tensors: dict[str, Tensor], tied: bool) -> list[Tensor]:
    """Return the tensors that count as parameters: all, without the LM head if it is `tied` to the embedding."""
    head, embedding = (_find_tensor(tensors, name) for name in (_HEAD, _EMBEDDING))
    return [tensor for tensor in tensors.values() if not (tensor is head and embedding is not None and tied)]


def is_head_separate(tensors: Mapping[str, Tensor]) -> bool:
    """Return True if LM head and token embedding are both stored and differ. Reads values only if shapes agree."""
    head, embedding = (_find_tensor(tensors, name) for name in (_HEAD, _EMBEDDING))
    if head is None or embedding is None:
        return False
    times = tuple(tensor.file.stat().st_mtime_ns for tensor in (head, embedding))
    return not _are_equal(head, embedding, times)


def most_common_type(tensors: Mapping[str, Tensor]) -> str:
    """Return torch's name of the number type of most elements; empty without tensors or for a type not in `_TYPES`."""
    elements: Counter[str] = Counter()
    for tensor in tensors.values():
        elements[tensor.dtype] += tensor.numbers
    return _TYPES.get(elements.most_common(1)[0][0], "") if elements else ""


def _find_tensor(tensors: Mapping[str, Tensor], name: str) -> Tensor | None:
    """Return the tensor whose dotted name is or ends with `name`, or None."""
    return next((tensor for key, tensor in tensors.items() if f".{key}".endswith(f".{name}")), None)


@functools.lru_cache(maxsize=64)
def _are_equal(first: Tensor, second: Tensor, times: tuple[int, ...]) -> bool:
    """Return True if two tensors are equal byte by byte; with the `times` of their files, a changed file is reread."""
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return False
    with first.file.open("rb") as first_file, second.file.open("rb") as second_file:
        first_file.seek(first.start)
        second_file.seek(second.start)
        sizes = (min(_BLOCK, first.bytes - offset) for offset in range(0, first.bytes, _BLOCK))
        return all(first_file.read(size) == second_file.read(size) for size in sizes)


def tensors(files: Iterable[Path]) -> dict[str, Tensor]:
    """Return the tensors of safetensors files by name; other files are ignored.

    Raises ModelError if a file cannot be read or does not start with a valid header.
    """
    result: dict[str, Tensor] = {}
    for file in files:
        if file.suffix != ".safetensors":
            continue
        try:
            result |= _read_header(file, file.stat().st_size, file.stat().st_mtime_ns)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = safe_parsing.sentence(error, 160)
            raise ModelError(
                f"the weight file {str(file)!r} is truncated or damaged ({reason}): copy or download it again"
            ) from error
    return result


@functools.lru_cache(maxsize=256)
def _read_header(file: Path, size: int, time: int) -> dict[str, Tensor]:
    """Return the tensors in the header of a file; `size` and modification `time` are part of the cache key."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if not 0 < length <= size - _LENGTH_BYTES:
            raise ValueError(f"its header has {length} bytes of {max(size - _LENGTH_BYTES, 0)}")
        values = safe_parsing.json_object(stream.read(length), "its header")
    values.pop("__metadata__", None)
    tensors, data_start = {}, _LENGTH_BYTES + length
    for name, value in values.items():
        start, end = value["data_offsets"]
        if not 0 <= start <= end <= size - data_start:
            raise ValueError(f"a tensor is at {start} to {end} of {size - data_start} bytes")
        tensors[name] = Tensor(
            tuple(map(operator.index, value["shape"])), end - start, str(value["dtype"]), file, data_start + start
        )
    return tensors
