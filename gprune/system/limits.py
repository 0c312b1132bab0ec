"""Upper bounds of a study's settings, generous enough that only a typing mistake meets one.

The paper's settings are at least a hundred times smaller.
"""

import shutil
from pathlib import Path

from gprune.system.errors import GpruneError
from gprune.system.units import amount

MOST_LENGTH = 2**20
"""tokens of one sequence or window; the longest context of any model"""
MOST_SEQUENCES = 2**25
"""sequences of a calibration set, 16,384 times the paper's"""
MOST_BATCH = 2**16
"""sequences of one forward pass"""
MOST_POSITIONS = 64
"""strongest positions kept for each neuron and text, 8 times ours: as many rows as people read"""
MOST_CONTEXT_TOKENS = 2**28
"""tokens that contexts are made from; all their states are in memory at once"""
MOST_CONTEXTS = 2**10
"""context clusters of a layer, 146 times FANG's"""
MOST_RESTARTS = 10**4
"""k-means starts for each number of modules, 3,333 times ours"""
MOST_STEPS = 10**6
"""refinement steps of BCM, 6,667 times ours"""
MOST_MODULES = 2**16
"""modules of a layer; no layer has as many neurons for each of them"""
MOST_EPOCHS = 10**4
"""passes of MSL, 5,000 times the paper's"""
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


def require_room(kind: type[GpruneError], subject: str, size: int, folder: Path, remedy: str) -> None:
    """Check before the start that a disk has room for so many bytes.

    `subject` begins the sentence of the error, of the class `kind`, that names both, and `remedy` ends it; the
    folder need not exist yet.
    """
    existing_folder = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing_folder).free
    if free < size:
        disk = str(existing_folder)
        raise kind(f"{subject} needs {amount(size)}, but {disk!r} has {amount(free)} free: {remedy}")
