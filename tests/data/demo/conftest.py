"""One build of the demo's texts for all tests of this folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gprune.data.demo import texts


@pytest.fixture(scope="session")
def text_cache(built_once: Callable[..., Path]) -> Path:
    """A folder that holds every text, built once."""

    def build(folder: Path) -> None:
        for name in texts.NAMES:
            texts.documents(name, "train", folder)

    return built_once("demo-texts", build)
