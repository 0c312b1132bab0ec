"""What the browser counts while a line moves is what Python counts, of any modules and lines."""

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gprune.analysis.thresholds import Decision, by_layer
from gprune.app.pages.rasa import threshold_lines
from gprune.app.pages.rasa.threshold_lines import Lines
from gprune.app.ui import dragging
from gprune.pruning.rasa import adapt, prefers_auxiliary
from gprune.records import ModuleStatistics
from gprune.study import ReliabilitySettings

CASES = 60
HARNESS = """
import { readFileSync } from "node:fs"
const found = JSON.parse(readFileSync(0)).map((data) => {
  const level = { drift: data.drift_quantile, score: data.score_quantile }
  const self = { modules: decode(data), data, level }
  decide(self)
  return { ...self.counts, layers: self.counts.layers.map((one) => [...one]), line: self.line }
})
console.log(JSON.stringify(found))
"""


def drawn(rng):
    """Modules of a few layers, of whose values some are equal, and lines between and upon them."""
    layer = np.sort(rng.integers(0, rng.integers(1, 6), rng.integers(1, 60)))
    count, coarse = len(layer), rng.random() < 0.5
    values = [rng.random(count) * 10.0 ** rng.integers(-6, 3) for _ in range(4)]
    if coarse:
        values = [np.round(one, 1) for one in values]
    statistics = ModuleStatistics(*values[:2], rng.integers(1, 500, count), layer, *values[2:])
    drift, score = (float(rng.integers(0, 201)) / 200 for _ in range(2))
    rule = str(rng.choice(["drift_and_score", "drift", "none"]))
    return statistics, ReliabilitySettings(drift_quantile=drift, score_quantile=score, selection=rule)


def decided(statistics, settings):
    """What the rule decides; of the neurons, whose scores are not counted, there is one."""
    one = np.zeros((1, 1))
    scores = SimpleNamespace(ffn=one)
    partition = SimpleNamespace(global_labels=one.astype(int))
    return Decision(statistics, adapt(scores, scores, partition, statistics, settings, 0))


@pytest.mark.process
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node; the pages are tested in a browser too")
def test_any_modules_and_lines_are_counted_alike():
    rng = np.random.default_rng(5)
    cases = [drawn(rng) for _ in range(CASES)]
    folders = (Path(dragging.__file__).parent, Path(threshold_lines.__file__).parent)
    scripts = [folders[0] / "dragging.js", folders[1] / "counting.js", folders[1] / "drawing.js"]
    sent = []
    for statistics, rule in cases:
        lines = Lines(rule.drift_quantile, rule.score_quantile, rule.selection, False)
        sent.append(threshold_lines._data(statistics, prefers_auxiliary(statistics, rule, 0), lines, -1, ""))
    program = "\n".join([*(script.read_text(encoding="utf-8") for script in scripts), HARNESS])
    command = ["node", "--input-type=module", "--eval", program]
    ran = subprocess.run(command, input=json.dumps(sent), capture_output=True, text=True, check=True, timeout=60)
    for (statistics, rule), found in zip(cases, json.loads(ran.stdout), strict=True):
        wanted = decided(statistics, rule)
        counts, names = wanted.counts, ("adapted", "neurons", "a", "b", "rescored")
        assert [found[name] for name in names] == [
            counts.adapted, counts.neurons, counts.from_primary, counts.from_auxiliary, counts.rescored,
        ]  # fmt: skip
        np.testing.assert_array_equal(found["layers"], by_layer(*wanted, int(statistics.layer.max()) + 1))
        assert found["line"] == {
            "drift": wanted.adapted.drift_threshold, "score": wanted.adapted.score_threshold,
        }  # fmt: skip
