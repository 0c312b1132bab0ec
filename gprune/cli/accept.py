"""`accept`: do we get what others have published for a real model? One table to paste into an issue."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, TextIO

from gprune.cli import EXIT_UNFILLED, add_cache, add_settings, paths, place, registered, say
from gprune.cli.jobs import add_devices
from gprune.cli.reproduce import work_of
from gprune.cli.study import add_field
from gprune.models.shapes import is_random
from gprune.study.fields import OPTIONS
from gprune.system import safe_parsing
from gprune.system.errors import ModelError, SettingsError

if TYPE_CHECKING:
    from gprune.experiments.reproduction.acceptance import Acceptance
    from gprune.experiments.reproduction.work import TableWork

RESULT = "acceptance.md"
_MODELS = "huggyllama/llama-7b, meta-llama/Llama-2-7b-hf, meta-llama/Llama-3.1-8B, or a folder"


def add(commands: Any) -> None:
    """Registers the command."""
    parser = registered(
        commands,
        "accept",
        _accept,
        "Runs the settings whose figures others have published, and prints ours beside them.",
    )
    parser.add_argument("--model", required=True, help=f"a model that figures are published for: {_MODELS}")
    parser.add_argument("--as", dest="name", default="", metavar="NAME", help="which model a folder holds")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("--published", type=place, metavar="FILE", help="a list of figures of your own, as CSV")
    parser.add_argument("--accuracy", action="store_true", help="zero-shot accuracies too: the seven tasks")
    parser.add_argument("--out", type=place, metavar="FOLDER", help="where to write (default: in the cache)")
    add_devices(parser)
    for option in ("primary", "auxiliary"):
        add_field(parser, option, OPTIONS[option])
    add_field(parser, "task-folder", "evaluation.task_folder")
    add_settings(parser, "any other field of every study, as calibration.batch=8 (repeatable)")
    add_cache(parser)


def _accept(options: argparse.Namespace) -> int:
    from gprune.experiments.reproduction import presets
    from gprune.models import identity

    found = _acceptance(options)
    made = work_of(options, [found.table], found.series, "acceptance")
    # a table that is piped into a file has nothing before it
    _plan(found, made, sys.stdout if options.dry_run else sys.stderr)
    if options.dry_run:
        return 0
    # what is wrong with the model is told before anything is fetched beside it
    folder = identity.locate(found.series.model, download=True)
    presets.require_sizes(found.name, folder)
    return _run(options, found, made)


def _acceptance(options: argparse.Namespace) -> Acceptance:
    """The published figures that are asked for, and their studies."""
    from gprune.data.published.claims import ACCURACY, claims
    from gprune.experiments.reproduction import acceptance, presets
    from gprune.experiments.reproduction.grid import Series
    from gprune.experiments.reproduction.scale import SUITES, choose
    from gprune.models import identity

    if is_random(options.model):
        raise SettingsError(
            f"{safe_parsing.quoted(options.model)} has random weights, which no published figure is of: give "
            "the folder or the hub name of a trained model"
        )
    # jobs run in a folder of their own, so paths are made whole here
    model = "demo" if options.model == "demo" else identity.resolve(options.model)
    every = claims(options.published)
    known = tuple(dict.fromkeys(claim.model for claim in every))
    name = presets.named(model, options.name, known)
    chosen = [c for c in every if c.model == name and (options.accuracy or c.figure != ACCURACY)]
    if not chosen:
        raise SettingsError(f"the figures of {name} are accuracies alone: ask for them with --accuracy")
    changes: dict[str, Any] = {
        "primary": paths.text(options.primary),
        "auxiliary": paths.text(options.auxiliary),
        "tasks": SUITES["paper"] if options.accuracy else (),
        "task_folder": paths.task_folder(options.task_folder or "") or None,
        "settings": tuple(map(paths.assigned, options.set)),
    }
    scale = choose(model, "paper", changes)
    scale = choose(model, "paper", changes | acceptance.scale_for(chosen, scale))
    return acceptance.Acceptance(name, Series(model, scale), chosen)


def _plan(found: Acceptance, made: TableWork, stream: TextIO) -> None:
    """Says what there is to do, before anything is fetched or run."""
    from gprune.experiments.reproduction import acceptance, work

    tables, series = [found.table], found.series
    missing = work.missing(tables, series, made.finished)
    sizes = f"{len(found.asked)} figures in {len(found.table.rows(series))} rows"
    count = len(work.needed(tables, series))
    studies = f"{count} {'study' if count == 1 else 'studies'}, {len(missing)} of them missing"
    lines = [f"{found.name}: {sizes}, from {studies}"]
    lines += [f"until {e.until:<12} {e.study.name:<48} {' '.join(e.study.methods)}" for e in missing]
    lines.append(f"model: {_model(found)}")
    left = [row for entry in missing for row in entry.rows]
    lines += [acceptance.estimate(left, acceptance.weights_of(found))] if left else []
    say("\n".join(lines), file=stream, flush=True)


def _model(found: Acceptance) -> str:
    """Where the model is, or what it takes to have it."""
    from gprune.experiments.reproduction import presets
    from gprune.models import hub, identity

    model = found.series.model
    try:
        folder = identity.locate(model)
    except ModelError as error:
        # whoever only asks is told why it cannot be had; whoever runs it is stopped by the same sentence
        try:
            if identity.is_hub_name(model):
                return hub.offer(model, identity.lacking)
            return safe_parsing.sentence(error)
        except ModelError as refusal:
            return safe_parsing.sentence(refusal)
    presets.require_sizes(found.name, folder)
    return str(folder)


def _run(options: argparse.Namespace, found: Acceptance, made: TableWork) -> int:
    from gprune.cli.progress import Shown
    from gprune.experiments.reproduction import acceptance, work
    from gprune.jobs import device_slots
    from gprune.system.files import write_text

    work.prepare(found.series, substitute="")
    device_slots.allow(options.devices)
    with Shown() as shown:
        (table,) = made.run(shown.watch, shown.ended)
    compared = found.compare(table)
    text = acceptance.markdown(compared, found.name, table, found.series, made.command)
    write_text(made.folder / RESULT, text)
    say(text, end="")
    say(f"written: {made.folder / RESULT}", file=sys.stderr)
    return EXIT_UNFILLED if any(one.reason for one in compared) else 0
