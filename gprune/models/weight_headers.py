"""Answers: which tensors do weight files hold, and of what shapes, without reading one of them?

A safetensors file starts with eight bytes of length and so much JSON. Needs no torch.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gprune.system import safe_parsing
from gprune.system.errors import ModelError

_LENGTH = 8
_HEAD = "lm_head.weight"
_MOST = 100 * 2**20
"""bytes of a header; safetensors itself reads no longer one"""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as its file names it."""

    shape: tuple[int, ...]
    bytes: int
    """of its numbers"""

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


def counted(found: dict[str, Tensor], tied: bool) -> list[Tensor]:
    """The tensors that hold numbers of their own: not the head of a model in which it is `tied`."""
    return [one for name, one in found.items() if not (name == _HEAD and tied)]


def tensors(files: Iterable[Path]) -> dict[str, Tensor]:
    """The tensors of safetensors files by name; other files are passed over.

    Raises ModelError where a file cannot be read or does not start with such a header.
    """
    found: dict[str, Tensor] = {}
    for file in (file for file in files if file.suffix == ".safetensors"):
        try:
            found |= _of(file)
        except (OSError, ValueError, KeyError, TypeError) as error:
            said = safe_parsing.sentence(error, 160)
            raise ModelError(
                f"the weight file {str(file)!r} is truncated or damaged ({said}): copy or download it again"
            ) from error
    return found


def _of(file: Path) -> dict[str, Tensor]:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH), "little")
        room = file.stat().st_size - _LENGTH
        if not 0 < length <= min(room, _MOST):
            raise ValueError(f"its header has {length} bytes of {max(room, 0)}")
        values = safe_parsing.json_object(opened.read(length), "its header")
    values.pop("__metadata__", None)
    return {name: _tensor(one, room - length) for name, one in values.items()}


def _tensor(values: dict[str, list[int]], room: int) -> Tensor:
    start, end = values["data_offsets"]
    shape = tuple(values["shape"])
    if not 0 <= start <= end <= room or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"a tensor stands at {start} to {end} of {room} bytes")
    return Tensor(shape, end - start)
