"""`speed`: how fast dense and pruned models are, side by side (appendix, practical inference speedup).

With `--detach` a job measures it, alone on its device.

The first model stays in memory; the others are loaded one at a time. Besides model folders, the command measures real
shapes with random weights, `random:llama2-7b`, also cut to a narrower width in every layer, `random:llama2-7b@0.5`:
speed depends on the shapes, not on the weights.
"""

import argparse
import json
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import Any

from gprune.cli import add_cache, add_command, add_job, say, to_path
from gprune.cli.jobs import job_reporter, submit_command
from gprune.cli.progress import show_stages
from gprune.jobs.folder import SPEEDS
from gprune.models.shapes import SHAPES
from gprune.system.errors import Cancelled, GpruneError, SettingsError
from gprune.system.files import require_place
from gprune.system.progress import Progress

_COLUMNS = ("model", "parameters", "phase", "mode", "tokens/s", "IQR", "ratio", "IQR", "peak memory")


def add(commands: Any) -> None:
    """Register the command."""
    speed = add_command(commands, "speed", _speed)
    speed.add_argument(
        "models",
        nargs="+",
        metavar="FOLDER",
        help="model folders, dense or pruned, or random:SHAPE[#layers=N][@RETENTION] with random weights, "
        f"where SHAPE is a folder or one of {', '.join(SHAPES)}; the first is the reference, and naming it "
        "twice shows the noise",
    )
    speed.add_argument("--preset", default="auto", help="gpu (the paper's setting), cpu, or auto")
    speed.add_argument("--batch", type=int, help="sequences of a batch")
    speed.add_argument("--prompt", type=int, help="tokens of the prompt")
    speed.add_argument("--new", type=int, help="tokens to generate")
    speed.add_argument("--repeats", type=int, help="timed repetitions after one warm-up")
    speed.add_argument("--dtype", help="float32, bfloat16 or float16")
    speed.add_argument("--device", help="cpu or cuda")
    speed.add_argument(
        "--modes",
        nargs="+",
        help="ways to decode: eager, graph (a captured CUDA graph), compiled (and captured, on a GPU)",
    )
    speed.add_argument("--align", type=int, default=64, help="FFN widths of random:SHAPE@RETENTION")
    speed.add_argument("--json", type=to_path, metavar="OUT.json", help="write all measurements to a file")
    add_job(speed, submit_command)
    add_cache(speed)


def _speed(options: argparse.Namespace) -> int:
    if options.json is not None:
        require_place(options.json)
    settings = _settings(options)
    with job_reporter(options.job) as reporter:
        return _measure_speed(options, settings, reporter)


def _measure_speed(options: argparse.Namespace, settings: Any, reporter: Any) -> int:
    """Measure, print and write; SettingsError at the end where a model could not be measured."""
    with show_stages(reporter) as show:
        rows, problem = _measured(options, settings, partial(show, "speed"))
    machine = _machine(settings.device)
    files = [options.json] if options.json is not None else []
    files += [options.job / SPEEDS] if options.job is not None else []
    values = {"setting": asdict(settings), "machine": machine, "rows": [asdict(row) for row in rows]}
    values |= {"problem": str(problem)} if problem else {}
    _print_table(rows, settings, machine)
    for file in files:
        file.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if problem:
        raise problem
    return 0


def _measured(options: argparse.Namespace, settings: Any, listener: Progress) -> tuple[list[Any], SettingsError | None]:
    """Return the rows of all models; where one cannot be measured, those of the models before it, and the error."""
    from gprune.evaluation import speed
    from gprune.models.export import measurable

    models: dict[str, Any] = {}
    times = Counter[str]()
    for name in options.models:
        measurable.require_known(name, options.align)
        times[name] += 1
        label = name if times[name] == 1 else f"{name} #{times[name]}"
        models[label] = partial(measurable.load_model, name, settings.device, settings.dtype, options.align)
    measurement = speed.Measurement(models, settings, listener)
    try:
        measurement.run()
    except Cancelled:
        raise
    except GpruneError as error:
        rows = measurement.rows()
        if not rows:
            raise
        model_count = len({row.model for row in rows})
        return rows, SettingsError(
            f"{model_count} of {len(models)} models are measured and their rows printed, no more: {error}"
        )
    return measurement.rows(), None


def _settings(options: argparse.Namespace) -> Any:
    from gprune.evaluation import speed

    changes = {name: getattr(options, name) for name in ("batch", "prompt", "repeats", "dtype", "device")}
    modes = None if options.modes is None else tuple(options.modes)
    return speed.with_changes(speed.preset(options.preset), **changes, new_tokens=options.new, modes=modes)


def _machine(device: str) -> dict[str, str]:
    import torch
    import transformers

    from gprune.models import devices

    names = {"torch": torch.__version__, "transformers": transformers.__version__}
    if devices.is_gpu(device):
        return {"GPU": devices.name(device), **names}
    return {"threads": str(torch.get_num_threads()), **names}


def table(rows: list[Any]) -> list[str]:
    """Return measured speeds as lines of aligned text."""
    from gprune.analysis.table import Table

    return Table.of(_COLUMNS, map(_cells, rows)).text(left=(0, 2, 3))


def _cells(row: Any) -> list[str]:
    speed = [f"{row.tokens_per_second:,.1f}", f"{row.spread:,.1f}"]
    ratio = [f"{row.ratio:.2f}x", f"{row.ratio_spread:.2f}"]
    memory = f"{row.peak_bytes / 2**20:,.1f} MiB {row.memory}"
    return [row.model, f"{row.parameters:,}", row.phase, row.mode, *speed, *ratio, memory]


def _print_table(rows: list[Any], settings: Any, machine: dict[str, str]) -> None:
    for line in table(rows):
        say(line)
    words = ", ".join(f"{name} {value}" for name, value in machine.items())
    say(f"\n{settings.describe()}; {words}")
    say("Medians with their interquartile ranges (IQR); ratios to the first model, formed in each repetition.")
    if len({row.model for row in rows}) > 2:
        say("Each other model took turns with the first, whose rows are of all the repetitions that it made.")
