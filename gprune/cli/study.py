"""`study`: write a study as JSON; the options are the fields of a study."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from gprune.cli import add_command, add_settings, say
from gprune.study import Study, profiles
from gprune.study.fields import OPTIONS, assignment, documentation, hint
from gprune.study.methods import CONTROLS, choices, metric_choices, with_controls
from gprune.system.units import duration

if TYPE_CHECKING:
    from gprune.pipeline.estimate import Forecast

_HELP_SUFFIXES = {
    "primary": "; `texts` lists the names; options follow a #, as in c4.jsonl#fields=prefix+gold_completion",
    "metric": f": {', '.join(metric_choices())}",
    "methods": f": {', '.join(choices())}",
}


def add(commands: Any) -> None:
    """Register the command."""
    parser = add_command(commands, "study", _study)
    add_fields(parser, required=("model",))
    parser.add_argument(
        "--with-controls",
        action="store_true",
        help=f"also compare the controls, which show where a gain comes from: {', '.join(CONTROLS)}",
    )
    add_profile(parser)
    parser.set_defaults(primary="wikitext2", auxiliary="ptb")


def add_fields(parser: Any, required: Collection[str] = ()) -> None:
    """Add an option for each field in OPTIONS, and `--set` for the other fields."""
    for option, field in OPTIONS.items():
        add_field(parser, option, field, _HELP_SUFFIXES.get(option, ""), required=option in required)
    add_settings(parser, "any other field, for example reliability.drift_quantile=0.85 (repeatable)")


def changes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the options of `add_fields` by dotted field; `--set` takes precedence.

    Raises SettingsError if a value of `--set` is not FIELD=VALUE.
    """
    by_option = {field: getattr(options, option.replace("-", "_")) for option, field in OPTIONS.items()}
    values = {field: value for field, value in by_option.items() if value is not None}
    return values | dict(map(assignment, options.set))


def add_field(parser: Any, option: str, field: str, suffix: str = "", **overrides: Any) -> None:
    """Add an option with the type and the documentation of a field of the study.

    `field` is a dotted name; `suffix` is appended to the help; `overrides` are passed to ``add_argument``.
    """
    annotation = hint(field)
    # the number type of an optional number, such as `int | None`
    first_type = (get_args(annotation) or (annotation,))[0]
    keywords: dict[str, Any] = {}
    if first_type in (int, float):
        keywords["type"] = first_type
    elif get_origin(annotation) is tuple:
        keywords["nargs"] = "+"
    elif get_origin(annotation) is Literal:
        keywords["metavar"] = f"{{{','.join(get_args(annotation))}}}"
    help_text = documentation()[field] + suffix
    parser.add_argument(f"--{option}", help=help_text.replace("%", "%%"), **(keywords | overrides))


def add_profile(parser: Any) -> None:
    """Add the option `--profile`."""
    parser.add_argument(
        "--profile",
        choices=profiles.NAMES,
        default=profiles.PROPOSED,
        help="defaults of all other settings: paper has those of the paper, recommended those that won a search on a "
        f"development model (default: {profiles.PROPOSED})",
    )


def _study(options: argparse.Namespace) -> int:
    settings = dict(profiles.profile(options.profile).settings) | changes(options)
    study = Study(options.model, options.primary, options.auxiliary).with_settings(settings)
    if options.with_controls:
        study = replace(study, methods=with_controls(study.methods))
    from gprune.pipeline.stages.inputs import require_task_names

    require_readable(study)
    require_task_names(study)
    sys.stdout.write(study.to_json())
    return 0


def require_readable(study: Study) -> None:
    """Check model, texts and plug-ins like `require_usable`, and the tokenizer of a local model.

    Prints the number of tokens without an embedding. Raises ModelError if the tokenizer cannot be read.
    """
    from gprune.models.loading import load_tokenizer
    from gprune.models.vocabulary import embedding_notice
    from gprune.pipeline.stages.inputs import is_local, require_usable

    require_usable(study)
    if is_local(study.model):
        load_tokenizer(study.model, study.trust_remote_code)
        if notice := embedding_notice(study.model):
            say(notice, file=sys.stderr)


def print_forecast(forecast: Forecast | None) -> None:
    """Print the estimated memory and time of stages on stderr, and whether they fit.

    `forecast` is None if the model is not on this machine.
    """
    if forecast is None:
        say("memory and time: not known before the model is on this machine", file=sys.stderr)
        return
    from gprune.analysis.table import Table

    rows = []
    for stage in forecast.stages:
        device, host = (on(stage.need, stage.need.batch) / 2**30 for on in (forecast.on_device, forecast.on_host))
        batch = str(stage.need.batch) if stage.need.setting else ""
        time = "" if stage.seconds is None else duration(stage.seconds, 1)
        rows.append((stage.identity.name, f"{device:.1f}", f"{host:.1f}", batch, time))
    table = Table.of(("estimate", "device GiB", "host GiB", "at a time", "time"), rows).text() if rows else []
    for line in (*table, *forecast.lines):
        say(line, file=sys.stderr)
