"""A packed run."""

import zipfile
from pathlib import Path

import pytest
from archive.drafts import Draft
from synthetic_run import write_run

from gprune.pipeline.archive import write
from gprune.store import Store


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of a whole run of random numbers."""
    root = tmp_path_factory.mktemp("packed")
    name = write_run(root / "cache")
    write(Store(root / "cache"), name, root / "run.zip")
    return root / "run.zip"


@pytest.fixture
def draft(packed: Path) -> Draft:
    """Its files."""
    with zipfile.ZipFile(packed) as archive:
        return Draft({name: archive.read(name) for name in archive.namelist()})
