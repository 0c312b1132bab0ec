"""The demo's texts: three that its model was trained on, and a table of Unicode characters.

The folder `documents` has them as gzipped JSON lines, one document per line; LICENCES.txt lists the sources. A document
is a topic of Python's reference, a docstring, a source file or 64 rows of the table. About 8% of the documents are the
split "test", which was not used for training.
"""

import gzip
import json
from pathlib import Path

FOLDER = Path(__file__).with_name("documents")
TRAINED: tuple[str, ...] = ("python-reference", "science-docs", "python-code")
"""texts that the demo model was trained on"""
NAMES: tuple[str, ...] = (*TRAINED, "unicode-table")
DESCRIPTIONS: dict[str, str] = {
    "python-reference": "English prose of Python's language topics and standard-library documentation.",
    "science-docs": "English prose of the documentation of NumPy, SciPy, scikit-learn and pandas.",
    "python-code": "Source code of Python's standard library, without its docstrings.",
    "unicode-table": "Table of Unicode's characters: code, name, category, direction and decomposition.",
}
SPLITS: tuple[str, ...] = ("train", "test")
VERSIONS: dict[str, str] = {
    "python-reference": "4b5e218c14b5",
    "science-docs": "8dbd25767998",
    "python-code": "5d7cd5fcf94f",
    "unicode-table": "5cdf60036e5e",
}
"""part of the keys of results: change it whenever a text changes"""


def documents(name: str, split: str) -> list[str]:
    """Return the documents of a split, one of `SPLITS`, of a text, one of `NAMES`."""
    with gzip.open(FOLDER / f"{name}.{split}.jsonl.gz", "rt", encoding="ascii") as lines:
        return [json.loads(line) for line in lines]
