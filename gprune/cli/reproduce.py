"""`reproduce`: tables and figures of the paper, whole, for one model."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, get_args

from gprune.cli import EXIT_UNFILLED, add_cache, add_job, add_settings, command_line, paths, place, registered, say
from gprune.cli.jobs import add_devices, job_reporter, submit_command
from gprune.cli.study import add_field, add_profile
from gprune.study import profiles, short
from gprune.study.fields import OPTIONS, hint
from gprune.study.methods import choices
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, StoreError
from gprune.system.units import duration

if TYPE_CHECKING:
    from gprune.experiments.reproduction.assembly import Assembled
    from gprune.experiments.reproduction.grid import Series
    from gprune.experiments.reproduction.tables import PaperTable
    from gprune.experiments.reproduction.work import TableWork
    from gprune.jobs import JobReporter

# option: field of the scale
_SCALE = ("primary", "auxiliary", "substitute", "samples", "epochs", "windows", "limit", "speed", "controls")
_SCALE_LISTS = {"evaluate": "texts", "retentions": "retentions", "seeds": "seeds", "methods": "methods"}


def add(commands: Any) -> None:
    """Register the command."""
    parser = registered(
        commands,
        "reproduce",
        _reproduce,
        "Runs the missing studies behind tables of the paper, and writes the tables.",
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="names of tables (see --list), or `all`")
    parser.add_argument("--list", action="store_true", help="list the tables")
    add_field(parser, "model", OPTIONS["model"], "; several are taken one after the other", nargs="+")
    parser.add_argument("--scale", help="paper, demo or study (default: demo for `demo`, else paper)")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("--out", type=place, metavar="FOLDER", help="where to write (default: in the cache)")
    parser.add_argument(
        "--report",
        type=place,
        metavar="FILE",
        help="write what the table `study` or `repair` says of all the models; of `repair`, what "
        "FILE says of other models stays",
    )
    add_devices(parser)
    add_job(parser, submit_command)
    _add_scale(parser)
    add_cache(parser)


def _add_scale(parser: argparse.ArgumentParser) -> None:
    scale = parser.add_argument_group("what differs from the scale")
    for option in ("primary", "auxiliary", "substitute", "evaluate", "samples", "epochs", "windows"):
        add_field(scale, option, OPTIONS[option])
    add_field(scale, "limit", "evaluation.limit", ", and so does 0")
    add_field(scale, "task-folder", "evaluation.task_folder")
    scale.add_argument("--seeds", type=int, nargs="+", help="seeds; tables of one seed take the first")
    scale.add_argument("--retentions", type=float, nargs="+", help="retentions of the main table")
    scale.add_argument(
        "--methods",
        nargs="+",
        metavar="METHOD",
        help="methods of the main table, in place of the paper's rows and of the controls; gprune stands "
        f"there on the metric of each: {', '.join(choices())}",
    )
    scale.add_argument(
        "--tasks",
        nargs="+",
        metavar="TASK",
        help="zero-shot tasks of every study: names, paper (the seven), demo (the bundled ones), or none",
    )
    scale.add_argument(
        "--without-controls",
        action="store_false",
        dest="controls",
        default=None,
        help="leave out the rows that say what each part brings: some of them cost as much as GPrune",
    )
    add_profile(scale)
    settings = [word for word in get_args(hint("evaluation.speed")) if word != "none"]
    add_field(scale, "speed", "evaluation.speed", choices=settings, metavar=None)
    add_settings(scale, "any other field of every study, as calibration.batch=8 (repeatable)")


def _reproduce(options: argparse.Namespace) -> int:
    from gprune.experiments.reproduction import tables
    from gprune.experiments.reproduction.grid import Series

    if options.list:
        for table in tables.TABLES.values():
            say(f"{table.name:<20} {table.title}")
        return 0
    if not options.tables or not options.model:
        raise SettingsError("name a table, or `all`, and a model: `reproduce main --model demo`")
    chosen = tables.choose(options.tables)
    _require_fitting(options, chosen)
    # jobs run in a folder of their own, so paths are made whole here
    models = [paths.model(model) for model in options.model]
    every = [Series(model, _scale(options, model, chosen)) for model in models]
    if options.dry_run:
        return max([_dry_run(options, chosen, series) for series in every])
    with job_reporter(options.job) as reporter:
        code = max([_run(options, chosen, series, reporter) for series in every])
    if options.report:
        _report(options, chosen, every)
    return code


def _require_fitting(options: argparse.Namespace, chosen: list[PaperTable]) -> None:
    """Raises SettingsError for one folder for several models, or a report without its one table."""
    if options.out and len(options.model) > 1:
        raise SettingsError("--out takes the tables of one model: leave it out, and each has its own folder")
    if options.report and len(_reported(chosen)) != 1:
        raise SettingsError(f"--report is made of one table: name one of {', '.join(_reports())}")


def _reports() -> dict[str, Any]:
    """Return the functions that build the report of a table, by its name."""
    from gprune.experiments.reproduction import documents
    from gprune.experiments.reproduction.control_rows import FAIR
    from gprune.experiments.reproduction.repair_rows import REPAIR

    return {FAIR: documents.study_document, REPAIR: documents.repair_document}


def _reported(chosen: list[PaperTable]) -> list[str]:
    return [table.name for table in chosen if table.name in _reports()]


def _scale(options: argparse.Namespace, model: str, chosen: list[PaperTable]) -> Any:
    from gprune.experiments.reproduction import scale

    changes: dict[str, Any] = {name: paths.text(getattr(options, name)) for name in _SCALE}
    for option, field in _SCALE_LISTS.items():
        values = getattr(options, option)
        changes[field] = tuple(map(paths.text, values)) if values else None
    changes["tasks"] = tuple(map(paths.text, options.tasks)) if options.tasks else None
    changes["task_folder"] = paths.task_folder(options.task_folder or "") or None
    profile = profiles.profile(options.profile).settings
    changes["settings"] = (*profile, *map(paths.assigned, options.set))
    own = chosen[0].scale if len(chosen) == 1 else ""
    return scale.choose(model, options.scale or own or None, changes)


def work_of(options: argparse.Namespace, chosen: list[PaperTable], series: Series) -> TableWork:
    """What there is to do for some tables, written below a folder of the cache unless --out is given."""
    from gprune.experiments.reproduction.work import TableWork
    from gprune.experiments.reproduction.writing import folder_name
    from gprune.store import Store

    store = Store(options.cache)
    folder = options.out or store.root / "reproductions" / folder_name(series.model, series.scale)
    return TableWork(store, series, chosen, folder, command=command_line())


def _dry_run(options: argparse.Namespace, chosen: list[PaperTable], series: Series) -> int:
    from gprune.experiments.reproduction import work

    made = work_of(options, chosen, series)
    missing = {entry.shared: entry for entry in work.missing(chosen, series, made.finished)}
    needed = work.needed(chosen, series)
    for entry in needed:
        left = missing.get(entry.shared)
        state = f"until {left.until}" if left else "there"
        say(f"{state:<18} {entry.study.name:<48} {' '.join((left or entry).study.methods)}")
    rows = sum(len(table.rows(series)) for table in chosen)
    say(f"{rows} rows of {len(chosen)} tables from {len(needed)} studies, {len(missing)} of them missing")
    return 0


def _run(options: argparse.Namespace, chosen: list[PaperTable], series: Series, reporter: JobReporter | None) -> int:
    from gprune.cli.progress import Shown
    from gprune.experiments.reproduction import work
    from gprune.jobs import device_slots

    work.prepare(series)
    made = work_of(options, chosen, series)
    missing, seconds = made.outlook()
    time = "" if seconds is None else f", about {duration(seconds, 1)}, as in earlier runs"
    left = f"{missing} studies to run{time}"
    say(f"{short(series.model)}: {left if missing else 'every study is there'}", file=sys.stderr)
    device_slots.allow(options.devices)
    with Shown(reporter, "reproduce") as shown:
        tables = made.run(shown.watch, shown.ended)
    for table in tables:
        _print(table)
    say(f"tables: {made.folder}", file=sys.stderr)
    return 0 if all(table.filled == len(table.answers) for table in tables) else EXIT_UNFILLED


def _report(options: argparse.Namespace, chosen: list[PaperTable], every: list[Series]) -> None:
    """Writes the report of a table over all models."""
    from gprune.store import Store
    from gprune.system.files import write_text

    (name,) = _reported(chosen)
    file = options.report
    try:
        earlier = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        write_text(file, _reports()[name](Store(options.cache), every, command_line(), earlier))
    except OSError as error:
        raise StoreError(f"the report {options.report} cannot be written ({error})") from error
    say(f"report: {options.report}", file=sys.stderr)


def _print(table: Assembled) -> None:
    """Print a table, and once each why rows have no numbers."""
    from gprune.analysis.table import Table
    from gprune.experiments.reproduction.assembly import REASON

    frame = table.display.drop(columns=REASON, errors="ignore").astype(str)
    say(f"{table.table.name}: {table.table.title}")
    for line in Table(frame).text():
        say(line)
    missing = [answer.reason for answer in table.answers if answer.reason]
    for reason in dict.fromkeys(missing):
        say(f"{missing.count(reason)} of {len(table.answers)} rows: {safe_parsing.sentence(reason)}")
