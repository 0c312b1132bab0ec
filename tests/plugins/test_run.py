"""The example of docs/plugins.md, installed by pip in an environment of its own, in whole runs.

The environment borrows everything else from the one that the tests run in: nothing is downloaded.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tiny_study
from plugins.packages import METHOD, install
from safetensors.numpy import load_file
from waiting import limit

from gprune.records import UnitScores
from gprune.store import Store

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.process, pytest.mark.slow]
BROKEN = METHOD.replace("even", "broken").replace('"broken cut"', '"broken"') + "\nimport no_such_library\n"
METHODS = ("dense", "gprune", "flap", "magnitude", "magnitude_ranking")
OF_THE_PLUGIN = {"weighed", "scores", "drift", "partition", "modules", "adapted", "learning", "masks"}


@dataclass(frozen=True)
class Environment:
    """An environment with the example in it, and a study for it."""

    python: Path
    project: Path
    study: Path
    cache: Path
    model: Path
    variables: dict[str, str]

    def call(self, module, *arguments, cwd=PROJECT):
        command = [str(self.python), "-m", module, *arguments]
        environment = self.variables | {"PYTEST_ADDOPTS": ""}
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=limit(120))

    def run(self):
        done = self.call("gprune", "run", str(self.study), "--json", "--cache", str(self.cache))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PROJECT / "examples" / "plugin", folder / "project")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (site,) = (folder / "venv").glob("lib/*/site-packages")
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "-e", str(folder / "project")], check=True)
    install(site, "broken", {"broken.py": BROKEN}, {}, {"broken": "broken:broken"})
    values = tiny_study.made(folder, metric="magnitude", methods=METHODS, retention=0.6)
    (folder / "study.json").write_text(json.dumps(values))
    variables = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return Environment(
        python, folder / "project", folder / "study.json", folder / "cache", Path(values["model"]), variables
    )


@pytest.mark.long
def test_the_example_passes_its_tests_runs_and_is_recomputed_when_it_is_edited(installed):
    tests = installed.call("pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=installed.project)
    assert tests.returncode == 0 and "3 passed" in tests.stdout, tests.stdout + tests.stderr
    # one that cannot be imported is named with its reason, and disturbs nothing else
    listed = installed.call("gprune", "plugins")
    assert listed.returncode == 3 and "gprune-magnitude 0.1.0" in listed.stdout
    assert "the method broken of broken is left out: importing it failed" in listed.stderr
    assert "No module named 'no_such_library'" in listed.stderr
    first = installed.run()
    assert set(first["perplexity"]) == set(METHODS) and not first["unavailable"]
    assert all(np.isfinite(list(result.values())).all() for result in first["perplexity"].values())
    _require_magnitudes(installed, first["keys"])
    _require_recomputed(installed, first)


def _require_magnitudes(installed, keys):
    """The scores are the lengths of the weight vectors of the model's own file."""
    weights = load_file(installed.model / "model.safetensors")
    scores = Store(installed.cache).get("scores", keys["scores_primary"], UnitScores)
    for layer, row in enumerate(scores.ffn):
        parts = [weights[f"model.layers.{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")]
        rows = np.concatenate([parts[0], parts[1], parts[2].T], axis=1).astype(np.float64)
        np.testing.assert_allclose(row, np.linalg.norm(rows, axis=1), rtol=1e-6)


def _require_recomputed(installed, first):
    """An edit of the source is seen without installing again; what does not depend on it stays."""
    source = installed.project / "gprune_magnitude" / "metric.py"
    source.write_text(source.read_text().replace("np.sqrt(measured.facts", "np.cbrt(measured.facts"))
    second = installed.run()
    names = set(first["keys"]) & set(second["keys"])
    changed = {name for name in names if first["keys"][name] != second["keys"][name]}
    kinds = {name.partition(".")[0].split("_")[0] for name in changed}
    assert kinds == OF_THE_PLUGIN | {"perplexity", "checkpoint"}
    unchanged = names - changed
    assert {"statistics_primary", "norms", "clusters", "masks_flap", "perplexity.dense.0"} <= unchanged
    assert {"perplexity.flap.0", "perplexity.flap.1"} <= unchanged
    assert {"masks_magnitude", "masks_magnitude_ranking", "perplexity.gprune.0"} <= changed
    record = json.loads(next((installed.cache / "runs").glob("*/run.json")).read_text())
    reused = {name for name, entry in record["stages"].items() if entry.get("reused")}
    assert unchanged & set(record["stages"]) <= reused and not changed & reused
