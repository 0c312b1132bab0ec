"""A folder of installed packages on the path, for one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from plugins.packages import forget

from gprune.study import methods


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # what is really installed is in the tables before: they are filled once a process
    methods.faults()
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    forget()
    yield folder
    forget()
