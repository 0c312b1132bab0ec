"""What the browser counts while a line moves is what Python counts, of any modules and lines."""

import json
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest

from gprune.analysis.thresholds import Decision
from gprune.app.ui import components, threshold_lines
from gprune.app.ui.threshold_lines import Lines
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
  return { ...self.counts, line: self.line }
})
console.log(JSON.stringify(found))
"""


def random_case(rng):
    """Modules of a few layers, of whose values some are equal, and lines between and upon them."""
    layer = np.sort(rng.integers(0, rng.integers(1, 6), rng.integers(1, 60)))
    count, coarse = len(layer), rng.random() < 0.5
    values = [rng.random(count) * 10.0 ** rng.integers(-6, 3) for _ in range(4)]
    if coarse:
        values = [np.round(value, 1) for value in values]
    statistics = ModuleStatistics(*values[:2], rng.integers(1, 500, count), layer, *values[2:])
    drift, score = (float(rng.integers(0, 201)) / 200 for _ in range(2))
    rule = str(rng.choice(["drift_and_score", "drift", "none"]))
    return statistics, ReliabilitySettings(drift_quantile=drift, score_quantile=score, selection=rule)


def decision_of(statistics, settings):
    """What the rule decides; of the neurons, whose scores are not counted, there is one."""
    item = np.zeros((1, 1))
    scores = SimpleNamespace(ffn=item)
    partition = SimpleNamespace(global_labels=item.astype(int))
    return Decision(statistics, adapt(scores, scores, partition, statistics, settings, 0))


@pytest.mark.process
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_any_modules_and_lines_are_counted_alike():
    rng = np.random.default_rng(5)
    cases = [random_case(rng) for _ in range(CASES)]
    scripts = [components.FOLDER / name for name in threshold_lines.SCRIPTS]
    sent = []
    for statistics, rule in cases:
        lines = Lines(rule.drift_quantile, rule.score_quantile, rule.selection, False, ("A", "B"))
        sent.append(threshold_lines._data(statistics, prefers_auxiliary(statistics, rule, 0), lines, -1, ""))
    program = "\n".join([*(script.read_text(encoding="utf-8") for script in scripts), HARNESS])
    command = ["node", "--input-type=module", "--eval", program]
    ran = subprocess.run(command, input=json.dumps(sent), capture_output=True, text=True, check=True, timeout=60)
    for (statistics, rule), result in zip(cases, json.loads(ran.stdout), strict=True):
        expected = decision_of(statistics, rule)
        counts, names = expected.counts, ("adapted", "neurons", "a", "b", "rescored")
        assert [result[name] for name in names] == [
            counts.adapted, counts.neurons, counts.from_primary, counts.from_auxiliary, counts.rescored,
        ]  # fmt: skip
        assert result["line"] == {
            "drift": expected.adapted.drift_threshold, "score": expected.adapted.score_threshold,
        }  # fmt: skip
