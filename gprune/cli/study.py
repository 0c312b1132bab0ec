"""`study`: write a study as JSON, from options that are the study's own fields."""

import argparse
import sys
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

from gprune.cli import add_settings, registered
from gprune.study import Study, from_dict, profiles
from gprune.study.fields import OPTIONS, assignment, documentation, hint
from gprune.study.methods import CONTROLS, choices, metric_choices, with_controls

_MORE = {
    "primary": "; see `texts`; a dataset folder too; options follow a #, as in "
    "c4.jsonl#fields=prefix+gold_completion",
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


def add(commands: Any) -> None:
    """Registers the command."""
    parser = registered(commands, "study", _study)
    for option, field in OPTIONS.items():
        add_field(parser, option, field, _MORE.get(option, ""), required=option == "model")
    add_settings(parser, "any other field, as reliability.drift_quantile=0.85 (repeatable)")
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
    parser.add_argument(f"--{option}", help=words.replace("%", "%%"), **(shown | how))


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
    values: dict[str, Any] = {}
    for option, field in OPTIONS.items():
        value = getattr(options, option.replace("-", "_"))
        if value is None:
            continue
        section, _, name = field.rpartition(".")
        place = values.setdefault(section, {}) if section else values
        place[name] = value
    study = _profiled(from_dict(values), values, options.profile)
    if options.set:
        study = study.with_settings(dict(assignment(word) for word in options.set))
    if options.with_controls:
        study = replace(study, methods=with_controls(study.methods))
    from gprune.pipeline.stages.inputs import require_usable

    require_usable(study)
    if not options.dry_run:
        sys.stdout.write(study.to_json())
        return 0
    from gprune.cli.preflight import shown_forecast
    from gprune.pipeline.preflight import anew

    shown_forecast(anew(study, measure=True))
    return 0


def _profiled(study: Study, values: dict[str, Any], profile: str) -> Study:
    """A study with a profile's settings where its options have not named them."""
    settings = profiles.profile(profile).settings
    named = {f"{section}.{name}" for section, own in values.items() if isinstance(own, dict) for name in own}
    return study.with_settings({name: value for name, value in settings if name not in named})
