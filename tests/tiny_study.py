"""A whole study that runs in seconds: a random small LLaMA with its own tokenizer, and two real texts.

The texts are docstrings of the standard library, so that every machine has them.
"""

import functools
import inspect
import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tiny_shape import TINY
from tiny_tokenizer import byte_level
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import gprune
from gprune import pipeline
from gprune.pipeline import runs, stages
from gprune.store import Store
from gprune.study import Study, from_dict, run_name

PROSE = (random, inspect, json)


def write_texts(folder: Path) -> tuple[str, str, str]:
    """Three text files with different content."""
    folder.mkdir(parents=True, exist_ok=True)
    first, second, third = (folder / f"{module.__name__}.txt" for module in PROSE)
    for path, module in zip((first, second, third), PROSE, strict=True):
        path.write_text(inspect.getsource(module), encoding="utf-8")
    return str(first), str(second), str(third)


def write_model(folder: Path, texts: tuple[str, ...], *, kv_heads: int = 2, neurons: int = 27) -> str:
    """A LLaMA of two layers with grouped-query attention and an odd FFN width, as a Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = tuple(Path(path).read_text(encoding="utf-8") for path in texts)
    for name, data in _made(contents, kv_heads, neurons).items():
        (folder / name).write_bytes(data)
    return str(folder)


@functools.cache
def _made(texts: tuple[str, ...], kv_heads: int, neurons: int) -> dict[str, bytes]:
    """The files of the model, made once in a process."""
    tokenizer = byte_level((line for text in texts for line in text.splitlines(keepends=True)), 320, "<s>", "</s>")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    torch.manual_seed(0)
    sizes = {"intermediate_size": neurons, "num_key_value_heads": kv_heads, "vocab_size": 320, "dtype": "float32"}
    config = LlamaConfig(**TINY | sizes | {"bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": True})
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.3)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        fast.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def settings(model: str, texts: tuple[str, str, str], /, **changes) -> dict:
    """A study over them, small enough for a test."""
    values = {
        "model": model,
        "primary": texts[0],
        "auxiliary": texts[1],
        "calibration": {"samples": 16, "length": 16, "batch": 4},
        "modularization": {"candidates": [2, 3], "restarts": 1, "steps": 5},
        "sparsity": {"epochs": 1, "batch": 8},
        "scales": {"steps": 8, "joint_steps": 4},
        "choice": {"sequences": 8},
        "evaluation": {"texts": [texts[2], texts[0]], "preset": "16", "windows": 6},
    }
    return {**values, **changes}


def made(folder: Path, /, *, third: bool = False, shape: Mapping[str, int] | None = None, **changes) -> dict:
    """Texts and model in a folder, and the study over them, if wanted with a third calibration text."""
    texts = write_texts(folder / "texts")
    changes |= {"substitute": texts[2]} if third else {}
    return settings(write_model(folder / "model", texts, **shape or {}), texts, **changes)


def workshop(folder: Path, /, questions: int = 0, choices: int = 3, **shape: int) -> dict:
    """Texts and model in a folder, and a file with so many questions: what studies are made of."""
    texts = write_texts(folder / "texts")
    results = {"folder": folder, "texts": texts, "model": write_model(folder / "model", texts, **shape)}
    if questions:
        words = ["a", "bb", "ccc"][:choices]
        rows = [{"question": f"def {n}", "choices": words, "answer": n % choices} for n in range(questions)]
        (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        results["questions"] = str(folder / "questions.jsonl")
    return results


def finished(values: dict, cache: Path) -> tuple[Any, dict]:
    """A study that was run: opened as from Python, and what the run ended with."""
    result = pipeline.run(from_dict(values), Store(cache), silent)
    return gprune.open(result["run"], cache=cache), result


def results_of(opened: Any) -> stages.Results:
    """The results of a run that was opened as from Python."""
    return opened._loaded.results


def silent(*_: object) -> None:
    """Listens to nothing."""


def record_of(store: Store, study: Study) -> dict:
    """The record of the run of a study; there has to be one."""
    record = runs.read(store, run_name(study))
    assert record is not None
    return record
