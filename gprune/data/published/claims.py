"""Answers: which figures have others published for a model, under which settings, to hold ours against?

Figures of peers' papers and of people who ran their code stand in acceptance.csv; those of the paper itself
come from its main table. Every one is measured in windows of 128 tokens; others are not comparable.
"""

import csv
import io
import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from gprune.data.published.figures import MODELS, table
from gprune.data.published.rows import DENSE
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, UnreadableError

COLUMNS = ("model", "method", "retention", "figure", "value", "samples", "settings", "source")
"""of a list of published figures, as CSV"""
ACCURACY = "accuracy"
"""a figure that is the mean accuracy of the seven tasks in points; any other is the perplexity of a text"""
OWN_SOURCE = "GPrune-LLM's paper"
OWN_SAMPLES = 2048
"""calibration sequences of the paper's own rows"""
_TEXTS = {"wikitext2_ppl": "wikitext2", "ptb_ppl": "ptb", "mean_accuracy": ACCURACY}


@dataclass(frozen=True, slots=True)
class Claim:
    """One published figure and what it was measured with."""

    model: str
    """as papers call it: LLaMA1-7B"""
    method: str
    """id of the method, as `flap` or `gprune:twflap`"""
    retention: float
    """kept fraction of the decoder's weights; 1 for the dense model"""
    figure: str
    """the text whose perplexity it is, or accuracy"""
    value: float
    """as published"""
    samples: int
    """calibration sequences of each text"""
    settings: str
    """further settings of the study, as FIELD=VALUE, joined by semicolons"""
    source: str
    """who says so"""


def claims(file: Path | None = None) -> tuple[Claim, ...]:
    """Every published figure of the package's and the paper's rows, or of a CSV file with COLUMNS.

    Raises SettingsError, with file and line, where it cannot be read or a row is no figure.
    """
    if file is None:
        text = resources.files(__package__).joinpath("acceptance.csv").read_text(encoding="utf-8")
        return (*_parsed(text, "acceptance.csv"), *_of_the_paper())
    with safe_parsing.refused_as(SettingsError):
        text = _read(file)
    return _parsed(text, repr(str(file)))


def _read(file: Path) -> str:
    try:
        return safe_parsing.contents(file, "the list of published figures").decode("utf-8-sig")
    except OSError as error:
        raise UnreadableError(f"the file {str(file)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableError(f"the file {str(file)!r} is not UTF-8: save it as UTF-8") from error


def _parsed(text: str, where: str) -> tuple[Claim, ...]:
    rows = csv.DictReader(io.StringIO(text))
    try:
        lacking = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
        lines = [] if lacking else list(enumerate(rows, 2))
    except csv.Error as error:
        raise SettingsError(f"{where} is no CSV ({error}): save it as CSV, UTF-8, with commas") from error
    if lacking:
        raise SettingsError(f"{where} lacks the columns {', '.join(lacking)}: it needs {', '.join(COLUMNS)}")
    found = tuple(_claim(row, f"line {number} of {where}") for number, row in lines)
    if not found:
        raise SettingsError(f"{where} holds no figure: write one a line")
    return found


def _claim(row: dict[str, str], where: str) -> Claim:
    try:
        retention, value, samples = float(row["retention"]), float(row["value"]), int(row["samples"])
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"{where} holds no numbers as retention, value and samples: write them like 0.5, 33.00, 1024"
        ) from error
    valid = 0 < retention <= 1 and (retention == 1) == (row["method"] == DENSE) and samples > 0
    if not valid or not math.isfinite(value) or value <= 0 or not row["figure"]:
        raise SettingsError(
            f"{where} is no figure: retention must be in (0, 1) and 1 for dense alone, value and samples "
            "more than 0, and figure the name of a text, or accuracy"
        )
    words = {name: row[name] or "" for name in ("model", "method", "figure", "settings", "source")}
    return Claim(retention=retention, value=value, samples=samples, **words)


def _of_the_paper() -> tuple[Claim, ...]:
    model = MODELS[0]
    return tuple(
        Claim(
            model,
            row.method,
            float(row.retention or 0),
            figure,
            row.values[name],
            OWN_SAMPLES,
            "",
            OWN_SOURCE,
        )
        for row in table("main", model)
        for name, figure in _TEXTS.items()
    )
