"""Shared fixtures: where real texts and models may be found, and one tolerance table."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return PROJECT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real texts (data/) and trained models (models/): GPRUNE_SHARED, or a folder beside the checkout."""
    folder = Path(os.environ.get("GPRUNE_SHARED", PROJECT.parent / "shared"))
    if not (folder / "models").is_dir():
        pytest.skip(f"no real models and texts at {folder}: set GPRUNE_SHARED to such a folder")
    return folder
