"""Where the numbers of a report come from: the run, its settings, its protocols, versions and machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gprune.analysis import comparison
from gprune.app.ui import derived_cache
from gprune.app.ui.commands import command, field
from gprune.evaluation import protocol
from gprune.pipeline.provenance import versions
from gprune.pipeline.runs.opened import Run
from gprune.study import field_names
from gprune.system.errors import GpruneError

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a reader needs to make a report's numbers again; all words are plain text."""

    title: str
    """what the run is called"""
    run: str
    """name of its folder"""
    state: str
    """how far it came"""
    made: str
    """when the report was made, in UTC"""
    command: str
    """what makes the run again"""
    settings: Pairs
    """every field of its study"""
    protocols: tuple[str, ...]
    """by what its figures of quality were measured"""
    provenance: Pairs
    """texts, versions and machine of the run"""
    writer: Pairs
    """versions of what wrote the report"""


def of(run: Run, now: datetime | None = None) -> Origin:
    """The origin of a run."""
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    record: dict[str, Any] = run.record
    texts = {f"text: {role}": words for role, words in (record.get("texts") or {}).items()}
    source = {key: value for key, value in (record.get("provenance") or {}).items() if key != "inputs"}
    return Origin(
        title=run.title or run.name,
        run=run.name,
        state=run.state,
        made=f"{moment:%Y-%m-%d %H:%M} UTC",
        command=command(run.study),
        settings=_pairs({name: field(run.study, name) for name in field_names()}),
        protocols=_protocols(run),
        provenance=_pairs({"started": record.get("started"), **texts, **source}),
        writer=_pairs(versions()),
    )


def _protocols(run: Run) -> tuple[str, ...]:
    try:
        rows = comparison.rows(derived_cache.measurements(run))
    except GpruneError:
        # the figures themselves say what is damaged
        return ()
    return tuple(protocol.lines(cell.stamp for row in rows for cell in row.cells.values()))


def _pairs(values: Mapping[str, Any]) -> Pairs:
    return tuple((name, _written(value)) for name, value in values.items())


def _written(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None or value == "" else str(value)
