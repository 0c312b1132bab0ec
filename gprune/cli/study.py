"""`study`: write a study as JSON, from options that are the study's own fields."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from gprune.cli import add_settings, registered, say
from gprune.study import from_dict, profiles
from gprune.study.fields import OPTIONS, assignment, documentation, hint
from gprune.study.methods import CONTROLS, choices, metric_choices, with_controls
from gprune.system.units import duration

if TYPE_CHECKING:
    from gprune.pipeline.estimate import Forecast

_MORE = {
    "primary": "; see `texts`; a dataset folder too; options follow a #, as in c4.jsonl#fields=prefix+gold_completion",
    "methods": f": {', '.join(choices())}",
}
_METAVARS = {
    "metric": f"{{{','.join(metric_choices())}}}",
    "methods": "METHOD",
    "primary": "TEXT",
    "auxiliary": "TEXT",
    "substitute": "TEXT",
    "choice.check_text": "TEXT",
    "evaluation.texts": "TEXT",
    "evaluation.tasks": "TASK",
    "evaluation.task_folder": "FOLDER",
}
_KNOWN = {"metric": metric_choices, "methods": choices}


def add(commands: Any) -> None:
    """Register the command."""
    parser = registered(commands, "study", _study)
    add_fields(parser, required=("model",))
    parser.add_argument(
        "--with-controls",
        action="store_true",
        help=f"compare the controls too, which say where a gain comes from: {', '.join(CONTROLS)}",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what memory and time the study will take, and write nothing",
    )
    add_profile(parser)
    parser.set_defaults(primary="wikitext2", auxiliary="ptb")


def add_fields(parser: Any, required: Collection[str] = ()) -> None:
    """Adds an option for each field that has one, and the one for every other field."""
    for option, field in OPTIONS.items():
        add_field(parser, option, field, _MORE.get(option, ""), required=option in required)
    add_settings(parser, "any other field, as reliability.drift_quantile=0.85 (repeatable)")


def changes(options: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given by the options of `add_fields`, by dotted name; `--set` comes last.

    Raises SettingsError where `--set` was given no FIELD=VALUE.
    """
    return _by_option(options) | dict(assignment(word) for word in options.set)


def _by_option(options: argparse.Namespace) -> dict[str, Any]:
    given = {field: getattr(options, option.replace("-", "_")) for option, field in OPTIONS.items()}
    return {field: value for field, value in given.items() if value is not None}


def add_field(parser: Any, option: str, field: str, more: str = "", **how: Any) -> None:
    """Adds an option that has the type and the documentation of a field of the study.

    `field` is dotted; `more` follows the documentation in the help; `how` goes to ``add_argument``.
    """
    kind = hint(field)
    inner = (get_args(kind) or (kind,))[0]
    shown: dict[str, Any] = {"metavar": _METAVARS.get(field)}
    if inner in (int, float):
        shown["type"] = inner
    elif get_origin(kind) is tuple:
        shown["nargs"] = "+"
    elif get_origin(kind) is Literal:
        shown["metavar"] = f"{{{','.join(get_args(kind))}}}"
    words = documentation()[field] + more
    action = parser.add_argument(f"--{option}", help=words.replace("%", "%%"), **(shown | how))
    known = _KNOWN[field]() if field in _KNOWN else get_args(kind) if get_origin(kind) is Literal else ()
    if known:
        # for shells: what is not among them may be a word all the same
        action.completer = lambda **_: known


def add_profile(parser: Any) -> None:
    """Adds the option that names a profile."""
    parser.add_argument(
        "--profile",
        choices=profiles.NAMES,
        default=profiles.PROPOSED,
        help="settings that other options do not name: paper states them, recommended won a search on a "
        f"development model (default: {profiles.PROPOSED})",
    )


def _study(options: argparse.Namespace) -> int:
    given, values = _by_option(options), dict[str, Any]()
    for field, value in given.items():
        section, _, name = field.rpartition(".")
        place = values.setdefault(section, {}) if section else values
        place[name] = value
    profile = profiles.profile(options.profile).settings
    study = from_dict(values).with_settings({name: one for name, one in profile if name not in given})
    if options.set:
        study = study.with_settings(dict(assignment(word) for word in options.set))
    if options.with_controls:
        study = replace(study, methods=with_controls(study.methods))
    from gprune.pipeline.stages.inputs import require_usable
    from gprune.pipeline.stages.task_data import require_task_names

    require_usable(study)
    require_task_names(study)
    if not options.dry_run:
        sys.stdout.write(study.to_json())
        return 0
    from gprune.pipeline.preflight import estimate_study

    print_forecast(estimate_study(study))
    return 0


def print_forecast(forecast: Forecast | None) -> None:
    """Print memory and time of stages, and whether they fit, on stderr; None if they are not known."""
    if forecast is None:
        say("memory and time: not known before the model is on this machine", file=sys.stderr)
        return
    from gprune.pipeline.estimate import judge

    for line in (*_table(forecast), *judge(forecast).lines):
        say(line, file=sys.stderr)


def _table(forecast: Forecast) -> list[str]:
    """One line a stage: memory on the device and beside it, sequences at a time, and time."""
    if not forecast.stages:
        return []
    width = max(len(stage.identity.name) for stage in forecast.stages)
    lines = [f"{'estimate':<{width}}  {'device GiB':>10}  {'host GiB':>8}  {'at a time':>9}  {'time':>8}"]
    for stage in forecast.stages:
        device, host = (on(stage.need, stage.need.batch) / 2**30 for on in (forecast.on_device, forecast.on_host))
        batch = stage.need.batch if stage.need.setting else ""
        time = "" if stage.seconds is None else duration(stage.seconds, 1)
        lines.append(f"{stage.identity.name:<{width}}  {device:>10.1f}  {host:>8.1f}  {batch:>9}  {time:>8}".rstrip())
    return lines
