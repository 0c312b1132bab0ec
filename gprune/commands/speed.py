"""`speed`: how fast dense and pruned models are, side by side (appendix, practical inference speedup).

Beside model folders it measures true shapes with random weights, `random:llama2-7b`, also cut to a narrower
width in every layer, `random:llama2-7b@0.5`: speed depends on shapes, not on what the weights are.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gprune import budget
from gprune.errors import ModelError, SettingsError
from gprune.records import ModelShape

RANDOM = "random:"
"""what the name of a model with random weights starts with"""

_COLUMNS = ("model", "parameters", "phase", "mode", "tokens/s", "spread", "ratio", "spread", "peak memory")
_FIELDS = (
    "model",
    "parameters",
    "phase",
    "mode",
    "tokens_per_second",
    "spread",
    "ratio",
    "ratio_spread",
    "peak_bytes",
    "memory",
)


def _shape(family: str, sizes: tuple[int, ...], vocabulary: int, positions: int) -> dict[str, Any]:
    """A published model's configuration from (hidden, neurons, layers, heads, key/value heads)."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    values = dict(zip((*names, "num_key_value_heads"), sizes, strict=True))
    return {
        **values,
        "model_type": family,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        "tie_word_embeddings": False,
    }


SHAPES = {
    "llama2-7b": _shape("llama", (4096, 11008, 32, 32, 32), 32000, 4096),
    "llama2-13b": _shape("llama", (5120, 13824, 40, 40, 40), 32000, 4096),
    "llama3-8b": _shape("llama", (4096, 14336, 32, 32, 8), 128256, 8192),
    "mistral-7b": _shape("mistral", (4096, 14336, 32, 32, 8), 32768, 32768) | {"sliding_window": None},
    "qwen2.5-7b": _shape("qwen2", (3584, 18944, 28, 28, 4), 152064, 131072),
    "qwen3-8b": _shape("qwen3", (4096, 12288, 36, 32, 8), 151936, 40960) | {"head_dim": 128},
}
"""Configurations of published models that can be built with random weights."""


def add(commands: Any) -> None:
    """Registers the command."""
    speed = commands.add_parser(
        "speed", help="measure tokens a second of dense and pruned models side by side"
    )
    speed.add_argument(
        "models",
        nargs="+",
        metavar="FOLDER",
        help="model folders, dense or pruned, or random:SHAPE[@RETENTION] with random weights, where SHAPE "
        f"is a folder or one of {', '.join(SHAPES)}; the first is the reference, and naming it twice shows "
        "the noise",
    )
    speed.add_argument("--preset", default="auto", help="gpu (the paper's setting), cpu, or auto")
    speed.add_argument("--batch", type=int, help="sequences side by side")
    speed.add_argument("--prompt", type=int, help="tokens of the prompt")
    speed.add_argument("--new", type=int, help="tokens to write")
    speed.add_argument("--repeats", type=int, help="timed repetitions after one warm-up")
    speed.add_argument("--dtype", help="float32, bfloat16 or float16")
    speed.add_argument("--device", help="cpu or cuda")
    speed.add_argument("--modes", nargs="+", help="ways to decode: eager, graph (a captured CUDA graph)")
    speed.add_argument("--align", type=int, default=64, help="FFN widths of random:SHAPE@RETENTION")
    speed.add_argument("--json", type=Path, metavar="OUT.json", help="write everything measured to a file")
    speed.add_argument("--csv", action="store_true", help="print comma-separated values instead of a table")
    speed.set_defaults(command=_speed)


def _speed(options: argparse.Namespace) -> int:
    if options.json is not None and not options.json.resolve().parent.is_dir():
        raise SettingsError(
            f"the folder {str(options.json.resolve().parent)!r} does not exist: create it before measuring"
        )
    from gprune import terminal
    from gprune.evaluation import speed

    settings = _settings(options)
    with terminal.Reporter() as shown, contextlib.redirect_stdout(sys.stderr):
        models: dict[str, Any] = {}
        for name in options.models:
            models[_unique(name, models)] = load(name, settings.device, settings.dtype, options.align)
        rows = speed.measure(models, settings, lambda *event: shown("speed", *event))
    machine = _machine(settings.device)
    if options.json is not None:
        values = {"setting": asdict(settings), "machine": machine, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.csv:
        _print_csv(rows)
    else:
        _print_table(rows, settings, machine)
    return 0


def _settings(options: argparse.Namespace) -> Any:
    from gprune.evaluation import speed

    return speed.with_changes(
        speed.preset(options.preset),
        batch=options.batch,
        prompt=options.prompt,
        new_tokens=options.new,
        repeats=options.repeats,
        dtype=options.dtype,
        device=options.device,
        modes=None if options.modes is None else tuple(options.modes),
    )


def load(name: str, device: str, dtype: str, align: int = 1) -> Any:
    """A causal language model to measure, without its tokenizer.

    Args:
        name: a dense or pruned folder or hub name, ``demo``, or ``random:SHAPE[@RETENTION]``.
        device: where it goes.
        dtype: number type of its weights.
        align: FFN widths of a random model that is cut are multiples of this.

    Raises:
        ModelError: there is no such model, or it cannot be read.
        SettingsError: the device is not there, a shape is unknown, or the memory is too small.
    """
    from transformers import AutoModelForCausalLM

    from gprune.export import checkpoint
    from gprune.models import loading
    from gprune.models.families import PRUNED_PREFIX
    from gprune.models.identity import configuration, locate, weight_files

    if name.startswith(RANDOM):
        return random_model(name.removeprefix(RANDOM), device, dtype, align)
    place, folder = loading.device_of(device), locate(name, download=True)
    if str(configuration(folder).get("model_type")).startswith(PRUNED_PREFIX):
        return checkpoint.load(folder, device, dtype)
    loading.require_readable(weight_files(folder))
    model = loading.read_model(AutoModelForCausalLM, folder, dtype=loading.DTYPES[dtype])
    return loading.move(model.requires_grad_(False), place)


def random_model(text: str, device: str, dtype: str, align: int) -> Any:
    """A model of a published shape with random weights, made on the device itself.

    Args:
        text: SHAPE or SHAPE@RETENTION; SHAPE is a key of ``SHAPES`` or a folder whose configuration is taken.
        device: where the weights are made.
        dtype: their number type.
        align: with a retention, FFN widths are multiples of this.

    Raises:
        ModelError: there is no such shape.
        SettingsError: the retention is none, or the memory is too small.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from gprune.evaluation.speed import out_of_memory
    from gprune.export import checkpoint
    from gprune.models.loading import DTYPES, device_of

    checkpoint.register()
    config = _random_config(text, align)
    place = device_of(device)
    generators = [place] if place.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=generators), torch.device(place):
            model: Any = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise SettingsError(
            f"{RANDOM}{text} in {dtype} does not fit in the memory of {place}: use a smaller shape or fewer "
            "models"
        ) from error
    return model.requires_grad_(False).eval()


def _random_config(text: str, align: int) -> Any:
    from transformers import AutoConfig

    from gprune.models.identity import configuration, locate

    name, sign, fraction = text.partition("@")
    if name in SHAPES:
        config = AutoConfig.for_model(**SHAPES[name])
    else:
        try:
            folder = locate(name)
        except ModelError as error:
            raise ModelError(
                f"{RANDOM}{name} is neither a folder nor one of {', '.join(SHAPES)}: check the spelling"
            ) from error
        config = AutoConfig.for_model(**configuration(folder))
    return _narrowed(config, _retention(fraction), align) if sign else config


def _retention(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise SettingsError(f"after @ comes a retention between 0 and 1, as in @0.5 (got {text!r})")
    return value


def _narrowed(config: Any, retention: float, align: int) -> Any:
    """The configuration of a model whose layers are all cut to one width near the retention."""
    from gprune.export.modeling_gprune import MODEL_CLASSES
    from gprune.models.families import PRUNED_PREFIX, layout_of

    if align < 1:
        raise SettingsError(f"align must be 1 or more (got {align})")
    layout_of(config.model_type, "a random model")
    head_width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = ModelShape(
        layers=config.num_hidden_layers,
        neurons=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_width=head_width,
        hidden=config.hidden_size,
    )
    groups, neurons = budget.uniform_counts(shape, retention)
    width = min(max(budget.nearest_whole(neurons / align), 1) * align, shape.neurons)
    values = {name: value for name, value in config.to_dict().items() if name != "model_type"}
    return MODEL_CLASSES[PRUNED_PREFIX + config.model_type].config_class(
        **values, ffn_widths=[width] * shape.layers, key_value_groups=[groups] * shape.layers
    )


def _unique(name: str, taken: dict[str, Any]) -> str:
    """The name, numbered from its second time on."""
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name} #{number}"
    return unique


def _machine(device: str) -> dict[str, str]:
    import torch
    import transformers

    names = {"torch": torch.__version__, "transformers": transformers.__version__}
    if device.startswith("cuda"):
        return {"GPU": torch.cuda.get_device_name(device), **names}
    return {"threads": str(torch.get_num_threads()), **names}


def table(rows: list[Any]) -> list[str]:
    """Measured speeds as lines of aligned text.

    Args:
        rows: ``gprune.evaluation.speed.Speed`` records.
    """
    cells = [list(_COLUMNS), *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = (0, 2, 3)
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]


def _cells(row: Any) -> list[str]:
    memory = f"{row.peak_bytes / 2**20:,.1f} MiB {row.memory}"
    return [
        row.model,
        f"{row.parameters:,}",
        row.phase,
        row.mode,
        f"{row.tokens_per_second:,.1f}",
        f"±{row.spread:,.1f}",
        f"{row.ratio:.2f}x",
        f"±{row.ratio_spread:.2f}",
        memory,
    ]


def _print_table(rows: list[Any], settings: Any, machine: dict[str, str]) -> None:
    for line in table(rows):
        print(line)
    words = ", ".join(f"{name} {value}" for name, value in machine.items())
    print(f"\n{settings.describe()}; {words}")
    print("Medians with their interquartile ranges; ratios to the first model, formed in each repetition.")


def _print_csv(rows: list[Any]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_FIELDS)
    writer.writerows([getattr(row, name) for name in _FIELDS] for row in rows)
