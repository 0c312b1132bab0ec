"""Nothing is lost, wrong or untrue after kills, full disks, damage and several starters: a short form."""

import os
import subprocess
import sys

import pytest


@pytest.mark.long
@pytest.mark.longest
@pytest.mark.process
def test_no_fault_loses_a_result_or_leaves_an_untrue_state(project):
    environment = {**os.environ, "PYTHONPATH": f"{project}{os.pathsep}{project / 'tests'}"}
    run = subprocess.run(
        [sys.executable, "-m", "faults", "--short"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 findings" in run.stdout
