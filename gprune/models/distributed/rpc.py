"""What processes that compute one model together tell each other: orders and errors, nothing pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from gprune.records import Array
from gprune.system import errors, safe_parsing
from gprune.system.errors import GpruneError, RanksError

_HEADER = "order"


@dataclass(frozen=True, slots=True)
class Order:
    """Some work that all processes take part in."""

    name: str
    values: Mapping[str, Any]
    """what JSON can hold"""
    arrays: Mapping[str, Array]

    def encoded(self) -> Array:
        """(bytes,) uint8 in the format of safetensors, with the plain values in its header."""
        about = json.dumps({"name": self.name, "values": dict(self.values)}, allow_nan=False)
        kept = {key: np.array(array, order="C") for key, array in self.arrays.items()}
        return np.frombuffer(bytearray(save(kept, {_HEADER: about})), dtype=np.uint8)

    @classmethod
    def decoded(cls, data: bytes) -> Order:
        """What `encoded` has made."""
        length = int.from_bytes(data[:8], "little")
        header = safe_parsing.json_object(data[8 : 8 + length], "the header of an order")
        about = safe_parsing.json_object(header["__metadata__"][_HEADER], "an order")
        return cls(about["name"], about["values"], load(data))


def plain(error: GpruneError) -> str:
    """An error as another process is told it."""
    return json.dumps({"kind": type(error).__name__, "words": str(error)})


def made(data: bytes) -> GpruneError:
    """The error of another process; of a kind that takes no sentence alone it is one of ours."""
    told = safe_parsing.json_object(data, "the error of another process")
    kind = getattr(errors, told["kind"], RanksError)
    simple = isinstance(kind, type) and issubclass(kind, GpruneError) and "__init__" not in vars(kind)
    return (kind if simple else RanksError)(told["words"])
