"""The estimate of a whole run against the peak memory of its process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from gprune.models.sources import SHAPES
from gprune.pipeline import estimate, opened
from gprune.store import Store
from gprune.study import from_dict

RUN = """
import sys
from pathlib import Path
from gprune import pipeline
from gprune.store import Store
from gprune.study import from_file
from gprune.system.machine import peak_memory

pipeline.run(from_file(sys.argv[1]), Store(Path(sys.argv[2])), lambda *_: None, until=sys.argv[3])
print(peak_memory())
"""
SHARED = Path(os.environ.get("GPRUNE_SHARED", "/nowhere")) / "models"
RANDOM = {
    "84M": LlamaConfig(
        hidden_size=768, intermediate_size=2048, num_hidden_layers=11, num_attention_heads=12,
        num_key_value_heads=12, vocab_size=4096, max_position_embeddings=2048, tie_word_embeddings=False,
    ),
    "two-7B-layers": LlamaConfig(**{**SHAPES["llama2-7b"], "num_hidden_layers": 2, "dtype": "float32"}),
}  # fmt: skip


def write_model(folder, config):
    """Random weights of a shape with the tokenizer of a small model."""
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((SHARED / "textllama-6m" / name).read_bytes())
    return folder


@pytest.mark.long
@pytest.mark.process
@pytest.mark.skipif(not SHARED.is_dir(), reason="GPRUNE_SHARED names no folder with the models")
@pytest.mark.parametrize(("name", "until"), [("demo", "all"), ("84M", "all"), ("two-7B-layers", "drift")])
def test_the_estimate_of_a_run_is_near_its_peak(name, until, tmp_path):
    small = name == "demo"
    model = name if small else write_model(tmp_path / "model", RANDOM[name])
    values = {
        "model": str(model),
        "primary": "python-reference",
        "auxiliary": "science-docs",
        "calibration": {"samples": 32 if small else 8, "length": 128, "batch": 8 if small else 4},
        "modularization": {"steps": 3, "restarts": 1, "candidates": [4, 8]},
        "sparsity": {"epochs": 1, "batch": 8 if small else 4},
        "evaluation": {"texts": ["python-code"], "preset": "128", "windows": 4, "batch": 2},
    }
    study, cache = from_dict(values), Store(tmp_path / "cache")
    (tmp_path / "study.json").write_text(study.to_json())
    results = opened(study, cache)
    forecast = estimate.estimate_missing(results.plan(until), results)
    needed = max(forecast.on_host(stage.need, stage.need.batch) for stage in forecast.stages)
    words = [sys.executable, "-c", RUN, str(tmp_path / "study.json"), str(cache.root), until]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    peak = int(done.stdout.splitlines()[-1])
    print(f"{name}: estimate {needed / 2**20:.0f} MiB, peak {peak / 2**20:.0f}, ratio {needed / peak:.3f}")
    assert 1.0 <= needed / peak <= 1.5, (needed, peak)
