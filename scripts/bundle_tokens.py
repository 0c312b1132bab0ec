"""Answers: how are the tokens made that come with the demo's model (`gprune.data.texts.bundled`)?

Draws, with the Python and the packages at hand, what the demo reads of its texts. To be run again whenever
one of these, the tokenizer, the texts or the demo's settings change.

Usage: python scripts/bundle_tokens.py
"""

import platform
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gprune.data import texts  # noqa: E402
from gprune.data.texts import bundled  # noqa: E402
from gprune.models import identity  # noqa: E402
from gprune.models.loading import load_tokenizer  # noqa: E402
from gprune.study.demo import TEXTS, demo_study  # noqa: E402


def made(cache: Path | None = None) -> dict[str, tuple[np.ndarray, int]]:
    """Ids and how many sequences their text has in all, by key; `cache` keeps the built texts."""
    study, tokenizer = demo_study(), load_tokenizer("demo")
    calibration, evaluation = study.calibration, study.evaluation
    asked = {"samples": calibration.samples, "length": calibration.length, "seed": study.seed}
    limit, known = evaluation.tokens, identity.tokenizer_fingerprint("demo")
    assert limit is not None
    found: dict[str, tuple[np.ndarray, int]] = {}
    for name in TEXTS:
        drawn = texts.draw(name, tokenizer, **asked, cache=cache)
        found[bundled.key(texts.fingerprint(name, "calibration"), known, **asked)] = (
            drawn.ids,
            drawn.available,
        )
        stream = texts.stream(name, tokenizer, cache, limit)
        found[bundled.key(texts.fingerprint(name, "evaluation"), known, limit=limit)] = stream, 0
    return found


def main() -> None:
    """Writes the file."""
    found = made()
    # the demo's tokenizer has 4,096 tokens
    narrow = {place: np.ascontiguousarray(ids, dtype=np.uint16) for place, (ids, _) in found.items()}
    counts = {place: str(count) for place, (_, count) in found.items()}
    save_file(narrow, bundled.FILE, counts | {bundled.PYTHON: platform.python_version()})
    print(f"{bundled.FILE}: {bundled.FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
