"""The worker of a job that only pretends: it leaves results made by hand.

It behaves as `behaviour.json` in the cache says of studies by name or seed (`fail`, `hold`).
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gprune.jobs import JobReporter
from gprune.store import Store
from gprune.study import Study, from_file
from gprune.system.errors import CorpusError

FAULT = "the text 'x' is empty: choose another"


def command_of(script: str) -> Callable[[Path, Sequence[str]], list[str]]:
    """Return what builds the argument list of a worker that runs a script."""
    return lambda folder, arguments: [sys.executable, str(Path(script).resolve()), str(folder), *arguments]


def behave(cache: Path, behaviours: dict[str, str]) -> None:
    (cache / "behaviour.json").write_text(json.dumps(behaviours))


def work(
    stage: str, leave_results: Callable[[Store, Study], object], on_failure: Callable[[Store, Study], object]
) -> None:
    """Do the job whose folder is the first argument of this process."""
    folder = Path(sys.argv[1])
    study, cache = from_file(folder / "study.json"), folder.parents[1]
    file = cache / "behaviour.json"
    behaviours = json.loads(file.read_text()) if file.exists() else {}
    behaviour = behaviours.get(study.name) or behaviours.get(str(study.seed))
    with JobReporter(folder) as report:
        report(stage, 1, 2, "learning")
        while behaviour == "hold" and not (cache / "go").exists():
            report(stage, 1, 2, "holding")
            time.sleep(0.05)
        if behaviour == "fail":
            on_failure(Store(cache), study)
            raise CorpusError(FAULT)
        leave_results(Store(cache), study)
