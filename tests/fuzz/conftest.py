"""The one profile of the fuzz tests: 200 cases a kind in `make test`, 2,500 in `make test-long`."""

import gc
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from gprune.system import safe_parsing
from gprune.system.errors import GpruneError

SHORT, LONG = 200, 2_500
MOST_SECONDS = 2.0
"""of the processor, for one case; the slowest so far takes a tenth of it"""

Fuzz = Callable[[Any, Callable[[Any], object]], None]


@pytest.fixture(
    params=[
        pytest.param(SHORT, id="short"),
        pytest.param(LONG, id="long", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ]
)
def fuzz(request: pytest.FixtureRequest, record_property: Any) -> Fuzz:
    """Hands every case of a strategy to a reader, which may return or raise GpruneError, and nothing else."""

    def run(cases: Any, reader: Callable[[Any], object]) -> None:
        counts = {
            "kind": request.node.originalname.removeprefix("test_"),
            "cases": 0,
            "read": 0,
            "refused": 0,
        }
        counts |= {"tracebacks": 0, "slowest": 0.0}

        @settings(
            max_examples=request.param,
            # the same cases in every run, unless someone goes looking for others
            derandomize=not os.environ.get("GPRUNE_FUZZ_AT_RANDOM"),
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        @given(cases)
        def check(case: Any) -> None:
            # what other tests have left is not collected on this reader's time
            gc.disable()
            began = time.thread_time()
            counts["cases"] += 1
            try:
                reader(case)
                counts["read"] += 1
            except GpruneError as error:
                counts["refused"] += 1
                shown = safe_parsing.sentence(error)
                assert 10 <= len(shown) <= 300 and "\n" not in shown, shown
            except BaseException:
                counts["tracebacks"] += 1
                raise
            finally:
                seconds = time.thread_time() - began
                gc.enable()
            counts["slowest"] = max(counts["slowest"], seconds)
            assert seconds < MOST_SECONDS, f"{seconds:.1f} s"

        try:
            check()
        finally:
            record_property("fuzz", counts)

    return run
