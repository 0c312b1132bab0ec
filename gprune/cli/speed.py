"""`speed`: measure the speed of dense and pruned models (appendix, practical inference speedup).

With `--detach`, the measurement runs as a job that has its device to itself. The first model stays in memory; the
others are loaded one at a time. Models are folders, or shapes with random weights such as `random:llama2-7b`, because
speed does not depend on the weights. `random:llama2-7b@0.5` has narrower layers, at 50% retention.
"""

import argparse
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import Any

from gprune.cli import add_cache, add_command, add_job, say, to_path
from gprune.cli.jobs import job_reporter, submit_command
from gprune.cli.progress import show_stages, speed_lines
from gprune.jobs.folder import SPEEDS
from gprune.models.sources import SHAPES
from gprune.system import machine
from gprune.system.files import require_place, write_json


def add(commands: Any) -> None:
    """Register the command."""
    speed = add_command(commands, "speed", _speed)
    speed.add_argument(
        "models",
        nargs="+",
        metavar="FOLDER",
        help="model folders, dense or pruned, or random:SHAPE[#layers=N][@RETENTION] with random weights, "
        f"where SHAPE is a folder or one of {', '.join(SHAPES)}; the first is the reference; name it "
        "twice to measure the noise",
    )
    speed.add_argument("--preset", default="auto", help="gpu (the paper's setting), cpu, or auto")
    speed.add_argument("--batch", type=int, help="sequences per batch")
    speed.add_argument("--prompt", type=int, help="tokens of the prompt")
    speed.add_argument("--new", type=int, help="tokens to generate")
    speed.add_argument("--repeats", type=int, help="timed repetitions after one warm-up")
    speed.add_argument("--dtype", help="float32, bfloat16 or float16")
    speed.add_argument("--device", help="cpu or cuda")
    speed.add_argument(
        "--modes",
        nargs="+",
        help="ways to decode: eager, graph (a captured CUDA graph) or compiled (also captured on a GPU)",
    )
    speed.add_argument("--align", type=int, default=64, help="FFN widths of @RETENTION are multiples of this number")
    speed.add_argument("--json", type=to_path, metavar="OUT.json", help="write all measurements to a file")
    add_job(speed, submit_command)
    add_cache(speed)


def _speed(options: argparse.Namespace) -> int:
    from gprune.evaluation import speed
    from gprune.models import loading

    if options.json is not None:
        require_place(options.json)
    settings = _settings(options)
    models: dict[str, Any] = {}
    counts = Counter[str]()
    for name in options.models:
        loading.require_loadable_name(name, options.align)
        counts[name] += 1
        label = name if counts[name] == 1 else f"{name} #{counts[name]}"
        models[label] = partial(loading.load_bare_model, name, settings.device, settings.dtype, options.align)
    with job_reporter(options.job) as reporter:
        with show_stages(reporter) as show:
            rows = [asdict(row) for row in speed.measure(models, settings, partial(show, "speed"))]
        description = machine.describe(settings.device)
        _print_table(rows, f"{settings.describe()}; {description}")
        files = (options.json, options.job and options.job / SPEEDS)
        for file in filter(None, files):
            write_json(file, {"setting": asdict(settings), "machine": description, "rows": rows})
    return 0


def _settings(options: argparse.Namespace) -> Any:
    """Return the settings of the preset, changed by the options that are given."""
    from gprune.evaluation import speed

    changes = {name: getattr(options, name) for name in ("batch", "prompt", "repeats", "dtype", "device")}
    modes = None if options.modes is None else tuple(options.modes)
    return speed.with_changes(speed.preset(options.preset), **changes, new_tokens=options.new, modes=modes)


def _print_table(rows: list[dict[str, Any]], setting: str) -> None:
    for line in speed_lines(rows):
        say(line)
    say(f"\n{setting}")
    say("Medians with their interquartile ranges (IQR); ratios are relative to the first model in each repetition.")
    if len({row["model"] for row in rows}) > 2:
        say("Each other model alternated with the first model; the rows of the first cover all its repetitions.")
