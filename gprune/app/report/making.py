"""The report of a run: one way for the page, the command line and the Python API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gprune.app.report import document, gathering, origin
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import SettingsError, StoreError
from gprune.system.files import write_bytes

ENDINGS = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class Report:
    """A report as it was made."""

    content: bytes
    """the file"""
    figures: int
    """how many figures are in it"""
    missing: dict[str, str]
    """why others are not, by name"""


def make(run: Run, cards: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> Report:
    """Makes the report of a run.

    `cards` are names of figures in their order, all where left out; `values` are what is set on the pages, as
    the address of a session has it; as by itself where left out.

    Raises:
        SettingsError: what is chosen is no figure.
    """
    entries = gathering.gather(run, cards or gathering.names(), values)
    missing = {entry.name: entry.problem for entry in entries if entry.figure is None}
    there = [entry for entry in entries if entry.figure is not None or cards]
    return Report(document.page(origin.of(run), there), len(entries) - len(missing), missing)


def require_place(path: Path) -> None:
    """Checks the name of a file that a report is to be written to.

    Raises:
        SettingsError: it does not end as an HTML file does.
    """
    if path.suffix.lower() not in ENDINGS:
        raise SettingsError(
            f"a report is written as HTML: give a name that ends in .html (got {path.name!r})"
        )


def save(report: Report, path: Path) -> None:
    """Writes a report, whole or not at all.

    Raises:
        StoreError: the file cannot be written.
    """
    try:
        write_bytes(path, report.content)
    except OSError as error:
        raise StoreError(
            f"{str(path)!r} cannot be written ({error.strerror or error}): choose another place"
        ) from error
