"""One hypothesis profile for all kinds of input: 200 cases in `make test`, 2,500 in `make test-long`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from gprune.system import safe_parsing
from gprune.system.errors import GpruneError

Fuzz = Callable[[Any, Callable[[Any], object]], None]


@pytest.fixture(
    params=[
        pytest.param(200, id="short"),
        pytest.param(2_500, id="long", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ]
)
def fuzz(request: pytest.FixtureRequest) -> Fuzz:
    """Pass every case of a strategy to a reader, which may return or raise GpruneError, and nothing else."""

    def run(cases: Any, reader: Callable[[Any], object]) -> None:
        @settings(
            max_examples=request.param,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        @given(cases)
        def check(case: Any) -> None:
            try:
                reader(case)
            except GpruneError as error:
                sentence = safe_parsing.sentence(error)
                assert 10 <= len(sentence) <= 300 and "\n" not in sentence, sentence

        check()

    return run
