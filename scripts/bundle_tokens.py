"""Write the tokens that are bundled with the demo's model (`gprune.data.texts.bundled`).

Run it again when the texts, the tokenizer or the settings of the demo change.

Usage: python scripts/bundle_tokens.py
"""

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


def draw_tokens() -> dict[str, tuple[np.ndarray, int]]:
    """Return token ids and the number of sequences that their text has, by key."""
    study, tokenizer = demo_study(), load_tokenizer("demo")
    calibration, evaluation = study.calibration, study.evaluation
    settings = {"samples": calibration.samples, "length": calibration.length, "seed": study.seed}
    limit, fingerprint = evaluation.tokens, identity.tokenizer_fingerprint("demo")
    assert limit is not None
    tokens: dict[str, tuple[np.ndarray, int]] = {}
    for name in TEXTS:
        sample = texts.draw(name, tokenizer, **settings)
        key = bundled.key(texts.fingerprint(name, "calibration"), fingerprint, **settings)
        tokens[key] = sample.ids, sample.available
        stream = texts.stream(name, tokenizer, limit=limit)
        tokens[bundled.key(texts.fingerprint(name, "evaluation"), fingerprint, limit=limit)] = stream, 0
    return tokens


def main() -> None:
    """Write the file."""
    tokens = draw_tokens()
    # the demo's tokenizer has 4,096 tokens
    ids = {key: np.ascontiguousarray(values, dtype=np.uint16) for key, (values, _) in tokens.items()}
    save_file(ids, bundled.FILE, {key: str(count) for key, (_, count) in tokens.items()})
    print(f"{bundled.FILE}: {bundled.FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
