"""A folder of installed packages on the path, for one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from plugins.packages import forget


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    # of the child process that lists plug-ins for the app
    monkeypatch.setenv("PYTHONPATH", str(folder))
    forget()
    yield folder
    forget()
