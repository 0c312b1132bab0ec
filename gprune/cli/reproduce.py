"""`reproduce`: run the studies of tables and figures of the paper, and write the tables."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from typing import Any, get_args

from gprune.analysis.table import Table
from gprune.cli import EXIT_UNFILLED, add_cache, add_command, add_job, add_settings, command_line, paths, say, to_path
from gprune.cli.jobs import job_reporter, submit_command
from gprune.cli.progress import StudiesProgress
from gprune.cli.study import add_field, add_profile
from gprune.experiments.reproduction import documents, tables, work
from gprune.experiments.reproduction import scale as scales
from gprune.experiments.reproduction.assembly import REASON, Assembled
from gprune.experiments.reproduction.catalogue import folder_name
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.tables import EXPERTS, FAIR, REPAIR, PaperTable
from gprune.experiments.reproduction.work import TableWork
from gprune.jobs import JobReporter
from gprune.store import Store
from gprune.study import profiles, short
from gprune.study.fields import OPTIONS, hint
from gprune.study.methods import choices
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError
from gprune.system.files import require_place, write_text


def add(commands: Any) -> None:
    """Register the command."""
    parser = add_command(
        commands,
        "reproduce",
        _reproduce,
        "Runs the missing studies behind tables of the paper, and writes the tables.",
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="names of tables (see --list), or `all`")
    parser.add_argument("--list", action="store_true", help="list the tables")
    add_field(parser, "model", OPTIONS["model"], "; several models run one after the other", nargs="+")
    parser.add_argument(
        "--scale", help="paper, demo, study or experts (default: that of the table, demo for `demo`, else paper)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the studies that would run, and exit")
    parser.add_argument(
        "--report",
        type=to_path,
        metavar="FILE",
        help="also write a report of the table `study`, `repair` or `experts` for all models",
    )
    add_job(parser, submit_command)
    _add_scale(parser)
    add_cache(parser)


def _add_scale(parser: argparse.ArgumentParser) -> None:
    """Add the options that replace fields of the scale."""
    scale = parser.add_argument_group("changes of the scale")
    for option in ("primary", "auxiliary", "substitute", "samples", "epochs", "windows"):
        add_field(scale, option, OPTIONS[option])
    add_field(scale, "evaluate", "evaluation.texts", dest="texts")
    add_field(scale, "limit", "evaluation.limit", "; 0 also means all")
    add_field(scale, "task-folder", "evaluation.task_folder")
    scale.add_argument("--seeds", type=int, nargs="+", help="seeds; tables that need one seed use the first")
    scale.add_argument("--retentions", type=float, nargs="+", help="retentions of the main table")
    scale.add_argument(
        "--methods",
        nargs="+",
        metavar="METHOD",
        help="methods of the main table, which replace the paper's rows and the controls; gprune is measured on the "
        f"metric of each: {', '.join(choices())}",
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
        help="omit the rows of controls, some of which cost as much as GPrune",
    )
    add_profile(scale)
    settings = [setting for setting in get_args(hint("evaluation.speed")) if setting != "none"]
    add_field(scale, "speed", "evaluation.speed", choices=settings, metavar=None)
    add_settings(scale, "any other field of every study, for example calibration.batch=8 (repeatable)")


def _reproduce(options: argparse.Namespace) -> int:
    if options.list:
        for table in tables.TABLES.values():
            say(f"{table.name:<20} {table.title}")
        return 0
    if not options.tables or not options.model:
        raise SettingsError("name a table, or `all`, and a model: `reproduce main --model demo`")
    chosen = tables.choose_tables(options.tables)
    build_report = _report_builder(options, chosen)
    # jobs run in another working directory, so paths are made absolute here
    models = [paths.model(model) for model in options.model]
    # a table of neurons comes before it, and then the check of the inputs refuses a mixture of experts
    method = "experts_reap" if chosen[0].name == EXPERTS else "gprune"
    all_series = [Series(model, _scale(options, model, chosen), method) for model in models]
    if options.dry_run:
        return max([_dry_run(options, chosen, series) for series in all_series])
    with job_reporter(options.job) as reporter:
        code = max([_run(options, chosen, series, reporter) for series in all_series])
    if build_report is not None:
        write_text(options.report, build_report(Store(options.cache), all_series, command_line()))
        say(f"report: {options.report}", file=sys.stderr)
    return code


def _report_builder(options: argparse.Namespace, chosen: list[PaperTable]) -> Any:
    """Return the function that builds the report, or None without --report.

    Raises SettingsError if the tables do not include exactly one with a report.
    """
    if not options.report:
        return None
    require_place(options.report)
    builders = {FAIR: documents.study_document, REPAIR: documents.repair_document, EXPERTS: documents.experts_document}
    selected = [builders[table.name] for table in chosen if table.name in builders]
    if len(selected) != 1:
        raise SettingsError(f"--report needs exactly one of the tables {', '.join(builders)}")
    return selected[0]


def _scale(options: argparse.Namespace, model: str, chosen: list[PaperTable]) -> Any:
    """Return the scale of a model: that of the options, of a single chosen table, or the default."""
    names = [field.name for field in fields(scales.Scale) if hasattr(options, field.name)]
    changes = {name: paths.text(getattr(options, name)) for name in names}
    changes["task_folder"] = paths.task_folder(options.task_folder or "") or None
    profile = profiles.profile(options.profile).settings
    changes["settings"] = (*profile, *map(paths.parse_setting, options.set))
    default_scale = chosen[0].scale if len(chosen) == 1 else ""
    return scales.choose(model, options.scale or default_scale or None, changes)


def build_table_work(options: argparse.Namespace, chosen: list[PaperTable], series: Series) -> TableWork:
    """Create the `TableWork` of the chosen tables; its output folder is in the cache."""
    store = Store(options.cache)
    folder = store.root / "reproductions" / folder_name(series.model, series.scale)
    return TableWork(store, series, chosen, folder, command=command_line())


def _dry_run(options: argparse.Namespace, chosen: list[PaperTable], series: Series) -> int:
    """Print every study that the tables need, and the stage until which it has to run; return the exit code."""
    table_work = build_table_work(options, chosen, series)
    missing = {entry.shared: entry for entry in work.missing(chosen, series, table_work.finished)}
    needed = work.needed_studies(chosen, series)
    for entry in needed:
        missing_entry = missing.get(entry.shared)
        state = f"until {missing_entry.until}" if missing_entry else "there"
        say(f"{state:<18} {entry.study.name:<48} {' '.join((missing_entry or entry).study.methods)}")
    rows = sum(len(table.rows(series)) for table in chosen)
    say(f"{rows} rows of {len(chosen)} tables from {len(needed)} studies, {len(missing)} of them missing")
    return 0


def _run(options: argparse.Namespace, chosen: list[PaperTable], series: Series, reporter: JobReporter | None) -> int:
    """Run the missing studies of one model, print its tables, and return the exit code."""
    work.check_inputs(series)
    table_work = build_table_work(options, chosen, series)
    missing = len(work.missing(chosen, series, table_work.finished))
    message = f"{missing} studies to run" if missing else "all studies are finished"
    say(f"{short(series.model)}: {message}", file=sys.stderr)
    with StudiesProgress(reporter, "reproduce") as display:
        assembled = table_work.run(display.update, display.print_end)
    for table in assembled:
        _print(table)
    say(f"tables: {table_work.folder}", file=sys.stderr)
    return 0 if all(table.filled == len(table.answers) for table in assembled) else EXIT_UNFILLED


def _print(table: Assembled) -> None:
    """Print a table, then the reasons for missing numbers, each once with its number of rows."""
    frame = table.display.drop(columns=REASON, errors="ignore").astype(str)
    say(f"{table.table.name}: {table.table.title}")
    for line in Table(frame).text():
        say(line)
    missing = [answer.reason for answer in table.answers if answer.reason]
    for reason in dict.fromkeys(missing):
        say(f"{missing.count(reason)} of {len(table.answers)} rows: {safe_parsing.sentence(reason)}")
