"""What lists call a run."""

from collections import Counter

from gprune.analysis import thresholds
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import short
from gprune.pipeline.runs.opened import Run
from gprune.study import ReliabilitySettings


def labels(runs: list[Run]) -> dict[str, str]:
    """Readable names of runs, by the name of their folder.

    Name or model, the state of those that are not done and what is not the default; of runs that share these,
    metric and retention as well, and of runs that share those too, a short hash: a narrow list shows it all.
    """
    found = {run.name: _label(run) for run in runs}
    # no two are called alike: a browser speaks of a run by its label
    for words in (_sizes, lambda run: run.name.rsplit("-", 1)[-1][:6], lambda run: run.name):
        times = Counter(found.values())
        for run in runs:
            if times[found[run.name]] > 1:
                found[run.name] += f" · {words(run)}"
    return found


def _sizes(run: Run) -> str:
    return f"{label(run.study.metric)} · keep {100 * run.study.retention:.3g} %"


def _label(run: Run) -> str:
    study = run.study
    parts = [run.title or short(study.model)]
    if run.state != "done":
        parts.append(run.state or "state unknown")
    if run.about.name:
        # whoever named it knows what tells it apart
        return " · ".join(parts)
    rule = thresholds.described(study.reliability)
    if study.reliability != ReliabilitySettings() and rule not in parts[0]:
        parts.append(rule)
    if study.seed and f"seed {study.seed}" not in parts[0]:
        parts.append(f"seed {study.seed}")
    return " · ".join(parts)
