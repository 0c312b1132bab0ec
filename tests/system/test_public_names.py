"""Public names of modules."""

import importlib
import subprocess
import sys

import pytest

import gprune.testing


def test_public_names_are_the_modules_classes_and_functions_themselves(tmp_path):
    from gprune.plugins.testing import check_metric
    from gprune.system.errors import GpruneError, StoreError

    assert gprune.errors.StoreError is StoreError and gprune.errors.GpruneError is GpruneError
    assert gprune.testing.check_metric is check_metric
    with pytest.raises(StoreError):
        gprune.open("unheard", cache=tmp_path)
    assert gprune.errors is importlib.import_module("gprune.errors")
    with pytest.raises(ModuleNotFoundError, match=r"gprune\.erors"):
        importlib.import_module("gprune.erors")


@pytest.mark.process
def test_public_names_load_nothing_heavy(project):
    code = "import sys, gprune.errors; print(sorted({'torch', 'numpy', 'gprune.study'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
