"""`report`: write figures of a run as one HTML file."""

import argparse
import sys
from typing import Any

from gprune.analysis.formatting import format_count
from gprune.cli import add_cache, add_command, add_run, say, to_path

_ABOUT = (
    "Writes the figures of a run as the app draws them, with findings, tables, settings and versions, as one HTML "
    "file that needs no network. Missing results are not computed."
)


def add(commands: Any) -> None:
    """Register the command."""
    report = add_command(commands, "report", _report, _ABOUT)
    add_run(report, nargs="?", default="")
    report.add_argument(
        "--cards",
        metavar="NAME",
        nargs="+",
        default=(),
        help="names of figures in the order of the report (default: all that the run has)",
    )
    report.add_argument("-o", "--out", metavar="FILE", type=to_path, help="the file to write: FILE.html")
    report.add_argument("--list", action="store_true", help="list the names of the figures, and exit")
    add_cache(report)


def _report(options: argparse.Namespace) -> int:
    from gprune.app import report as reports
    from gprune.pipeline import runs
    from gprune.pipeline.runs.opened import run_named
    from gprune.store import Store
    from gprune.system.errors import SettingsError
    from gprune.system.units import amount

    if options.list:
        for name in reports.figure_names():
            say(f"{name:<20}{reports.page_of_figure(name)}: {reports.describe_figure(name)}")
        return 0
    if not options.run or options.out is None:
        raise SettingsError("a report needs a run and a file: `report RUN -o FILE.html`")
    reports.require_html_name(options.out)
    store = Store(options.cache)
    runs.require_record(store, options.run)
    report = reports.make_report(run_named(str(store.root.resolve()), options.run), options.cards)
    reports.save_report(report, options.out)
    for name, problem in report.missing.items():
        say(f"left out: {name}: {problem}", file=sys.stderr)
    say(f"{options.out}: {format_count(report.figures, 'figure')}, {amount(len(report.content))}", file=sys.stderr)
    return 0
