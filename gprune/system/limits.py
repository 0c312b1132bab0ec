"""How much a study may ask for: generous bounds, so that whoever meets one has mistyped.

The paper's settings are at least a hundred times smaller. A refusal says what the settings would cost.
"""

import math
import shutil
from pathlib import Path

from gprune.system.errors import GpruneError, SettingsError
from gprune.system.units import amount

MOST_LENGTH = 2**20
"""tokens of one sequence or window; the longest context of any model"""
MOST_TOKENS = 2**32
"""tokens of a calibration set, 16,384 times the paper's: 16 GiB of ids"""
MOST_BATCH = 2**16
"""sequences of one forward pass"""
MOST_POSITIONS = 64
"""strongest positions kept for each neuron and text, 8 times ours: as many rows as people read"""
MOST_CONTEXT_TOKENS = 2**28
"""tokens that contexts are made from; all their states are in memory at once"""
MOST_CONTEXTS = 2**10
"""context clusters of a layer, 146 times FANG's"""
MOST_STEPS = 10**6
"""refinement steps of BCM, 6,667 times ours"""
MOST_CLUSTERINGS = 10**5
"""k-means runs of each layer, candidates times restarts: 6,667 times ours"""
MOST_MODULES = 2**16
"""modules of a layer; no layer has as many neurons for each of them"""
MOST_EPOCHS = 10**4
"""passes of MSL, 5,000 times the paper's"""
MOST_LEARNING = 10**12
"""tokens that MSL passes over in all, a million times the paper's"""
MOST_RANK = 2**12
"""rank of what recovery adds to a linear map, 512 times ours"""
MOST_ALIGNMENT = 2**16
"""multiple that FFN widths are rounded to; wider than any layer"""
MOST_STUDIES = 1000
"""studies of a sweep, as many as one array of Slurm's usually has"""
MOST_COUNT = 2**31 - 1
"""of what is only an upper bound itself and costs nothing"""
WEIGHTS_OF_A_GPU = 0.8
"""of a GPU's memory that weights may take before a model is laid over several: its passes need room"""
LARGER_DISK = "make room, or set HF_HOME to a folder on a larger disk"
"""what to do where a download of the hub has no room"""
LONGEST_NAME = 200
"""characters of what people call a study"""
LONGEST_TEXT = 4096
"""characters of any other text: the longest path of the system"""
LONGEST_LIST = 1000
"""entries of a list"""


def require_room(kind: type[GpruneError], what: str, size: int, folder: Path, remedy: str) -> None:
    """Checks that a disk has room for so many bytes of what is to be written, before the start.

    `what` begins the sentence of the error, of the class `kind`, that names both, and `remedy` ends it; the
    folder need not exist yet.
    """
    free = room(folder)
    if free < size:
        there = str(_existing(folder))
        raise kind(f"{what} needs {amount(size)}, but {there!r} has {amount(free)} free: {remedy}")


def room(folder: Path) -> int:
    """Free bytes of the disk that a folder is on; it need not exist yet."""
    return shutil.disk_usage(_existing(folder)).free


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def require_affordable(most: int, cost: str, factors: dict[str, int]) -> None:
    """Checks that what settings ask for together is not beyond every machine.

    `cost` is what their product counts ("tokens of each text"). Raises SettingsError where it is larger than
    `most`; the message names it, the settings and the bound.
    """
    product = math.prod(factors.values())
    if product <= most:
        return
    asked = " × ".join(f"{name} {_large(value)}" for name, value in factors.items())
    amount = f"would be {_large(product)} {cost}" if len(factors) > 1 else f"is too many {cost}"
    raise SettingsError(f"{asked} {amount}: at most {_large(most)} are taken, ask for fewer")


def _large(number: int) -> str:
    """A number as people read it; one of many digits with three of them and the power of ten."""
    if number < 10**9:
        return f"{number:,}"
    power = len(str(number)) - 1
    return f"{number / 10**power:.3g} × 10^{power}"
