"""Tokens of the embedded texts that come with the package, so that a first run of the demo tokenizes no text.

The demo's calibration sets and the starts of its streams lie beside its model, each under a key that hashes
all that decides it. Tokens by another tokenizer, of another seed or size are not among them. The script
`scripts/bundle_tokens.py` writes the file.
"""

import hashlib
import json

import numpy as np
from safetensors import safe_open

from gprune.data.demo import MODEL_FOLDER
from gprune.data.texts.tokens import token_fingerprint
from gprune.records import Array, Tokens

FILE = MODEL_FOLDER.parent / "tokens.safetensors"


def key(text: str, tokenizer: str, **asked: int) -> str:
    """Under what some tokens lie: the digests of a text and of a tokenizer, and what is asked for."""
    content = {"text": text, "tokenizer": tokenizer, **asked}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def drawn(name: str, text: str, tokenizer: str, samples: int, length: int, seed: int) -> Tokens | None:
    """The calibration set that `draw` makes of the text `name`; None where it does not come with the project.

    `text` and `tokenizer` are digests of what they hold.
    """
    found = _kept(key(text, tokenizer, samples=samples, length=length, seed=seed))
    if found is None:
        return None
    ids, available = found
    return Tokens(text=name, fingerprint=token_fingerprint(ids), ids=ids, available=available)


def stream(text: str, tokenizer: str, limit: int | None) -> Array | None:
    """(limit,) the start of a stream as `stream` of this package gives it; None where it is not there."""
    found = None if limit is None else _kept(key(text, tokenizer, limit=limit))
    return None if found is None else found[0]


def _kept(place: str) -> tuple[Array, int] | None:
    """The int32 ids under a key, and how many sequences their text has in all."""
    with safe_open(FILE, framework="numpy") as file:
        known = file.metadata()
        if place not in file.keys():  # noqa: SIM118
            return None
        ids: Array = file.get_tensor(place).astype(np.int32)
        return ids, int(known[place])
