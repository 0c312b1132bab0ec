"""A sweep over the bundled study, and a worker that only pretends to run its studies.

As a script it is the worker of a job: it leaves the results of the job's study, made by hand, and behaves as
`behaviour.json` in the cache says of studies by their seed (`fail`, `hold`).
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from made_runs import MAKERS, leave

from gprune.experiments.sweep import Sweep
from gprune.pipeline.record import RunRecord
from gprune.pipeline.stages import Graph, Results
from gprune.pipeline.stages.inputs import read_inputs
from gprune.records import ModelShape
from gprune.store import Store
from gprune.study import from_file
from gprune.study.demo import demo_study

SHAPE, MODULES = ModelShape(layers=2, neurons=40, heads=2, kv_heads=2, head_width=8, hidden=16), 5
UNTIL = "drift"


def a_sweep(*seeds: int) -> Sweep:
    """A study for each seed, as far as its drift."""
    return Sweep("seeds", demo_study(), {"seed": seeds}, until=UNTIL)


def command(folder: Path, arguments: Sequence[str]) -> list[str]:
    """The argument list of the worker."""
    return [sys.executable, str(Path(__file__).resolve()), str(folder), *arguments]


def main(folder: Path) -> None:
    from gprune.jobs import JobReporter
    from gprune.system.errors import CorpusError

    study, cache = from_file(folder / "study.json"), folder.parents[1]
    behaviours = cache / "behaviour.json"
    values = json.loads(behaviours.read_text()) if behaviours.exists() else {}
    behaviour = values.get(str(study.seed), "")
    with JobReporter(folder) as report:
        while behaviour == "hold" and not (cache / "go").exists():
            report("drift", 1, 2, "holding")
            time.sleep(0.05)
        if behaviour == "fail":
            raise CorpusError("the text 'x' is empty: choose another")
        missing: dict[str, str] = {}
        store = Store(cache)
        results = Results(store, Graph(study, read_inputs(study, missing, download=False, store=store)))
        record = RunRecord(results, UNTIL, {}, missing, lambda *_: None)
        leave(record, MAKERS, SHAPE, MODULES, present=UNTIL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
