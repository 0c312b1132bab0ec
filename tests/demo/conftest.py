"""One build of the demo's texts for all tests of this folder."""

from pathlib import Path

import pytest

from gprune.demo import texts


@pytest.fixture(scope="session")
def text_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds every text, built once."""
    folder = tmp_path_factory.mktemp("demo-texts")
    for name in texts.NAMES:
        texts.documents(name, "train", folder)
    return folder
