"""A sweep over the bundled study, and a worker that only pretends to run its studies.

As a script it is the worker of a job, see `pretend_worker`.
"""

import pretend_worker
from made_runs import MAKERS, leave

from gprune.experiments.sweep import Sweep
from gprune.pipeline.record import RunRecord
from gprune.pipeline.stages import Graph, Results
from gprune.pipeline.stages.inputs import read_inputs
from gprune.records import ModelShape
from gprune.store import Store
from gprune.study import Study
from gprune.study.demo import demo_study

SHAPE, MODULES = ModelShape(layers=2, neurons=40, heads=2, kv_heads=2, head_width=8, hidden=16), 5
UNTIL = "drift"


def a_sweep(*seeds: int) -> Sweep:
    """A study for each seed, as far as its drift."""
    return Sweep("seeds", demo_study(), {"seed": seeds}, until=UNTIL)


def leave_drift(store: Store, study: Study) -> None:
    missing: dict[str, str] = {}
    results = Results(store, Graph(study, read_inputs(study, missing, download=False, store=store)))
    leave(RunRecord(results, UNTIL, {}, missing, lambda *_: None), MAKERS, SHAPE, MODULES, present=UNTIL)


command = pretend_worker.command_of(__file__)


if __name__ == "__main__":
    pretend_worker.work("drift", leave_drift, lambda *_: None)
