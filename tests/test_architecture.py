"""The house's walls: who may import what, and that no part of it is forgotten by the contracts."""

import tomllib
from pathlib import Path

import pytest

TORCH_ROOMS = {
    "__main__",
    "bench",
    "calibration",
    "commands",
    "evaluation",
    "export",
    "models",
    "modularization",
    "registration",
    "sparsity",
    "surgery",
}
"""parts that may load torch; of some of them single modules may not"""


@pytest.fixture(scope="module")
def contracts(project):
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    return {each["name"]: each for each in settings["tool"]["importlinter"]["contracts"]}


def parts(folder: Path):
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return packages | {path.stem for path in folder.glob("*.py")} - {"__init__"}


def test_every_part_either_may_load_torch_or_is_held_to_load_none(project, contracts):
    held = {
        name.split(".")[1] for name in contracts["the app's process never imports torch"]["source_modules"]
    }
    whole = {
        name.split(".")[1]
        for name in contracts["the app's process never imports torch"]["source_modules"]
        if name.count(".") == 1
    }
    assert held | TORCH_ROOMS == parts(project / "gprune")
    assert not whole & TORCH_ROOMS


def test_the_contracts_of_layers_name_every_part(contracts):
    layered = [each for each in contracts.values() if each["type"] == "layers"]
    assert len(layered) == 2 and all(each["exhaustive"] for each in layered)


def test_pages_are_short_and_only_choose_a_view(project):
    for page in (project / "pages").glob("*.py"):
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 15, page
