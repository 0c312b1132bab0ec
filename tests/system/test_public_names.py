"""Modules that people import by names of before: the same module, whichever name comes first."""

import importlib
import subprocess
import sys

import pytest

import gprune

PUBLIC = {
    "gprune.errors": "gprune.system.errors",
    "gprune.export.checkpoint": "gprune.models.export.checkpoint",
    "gprune.measure": "gprune.api.measure",
    "gprune.testing": "gprune.plugins.testing",
    "gprune.testing.samples": "gprune.plugins.testing.samples",
}


@pytest.mark.parametrize(("public", "own"), PUBLIC.items())
def test_a_public_name_is_the_module_itself(public, own):
    module = importlib.import_module(public)
    assert module is importlib.import_module(own)
    assert module.__name__ == module.__spec__.name == own


def test_public_names_are_the_modules_and_errors_themselves(tmp_path):
    from gprune.errors import StoreError

    with pytest.raises(StoreError):
        gprune.open("unheard", cache=tmp_path)
    assert gprune.errors is importlib.import_module("gprune.errors")
    assert gprune.testing is importlib.import_module("gprune.testing")
    with pytest.raises(ModuleNotFoundError, match=r"gprune\.erors"):
        importlib.import_module("gprune.erors")


@pytest.mark.process
def test_public_names_load_nothing_heavy(project):
    code = "import sys, gprune.errors; print(sorted({'torch', 'numpy', 'gprune.study'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
