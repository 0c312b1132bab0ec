"""Every public name has an example, and every example runs."""

import doctest
import importlib
import inspect

import pytest

import gprune

MODULES = ("api.held", "api.opening", "api.preview", "api.results", "measure")


def described() -> dict[str, str]:
    """What is said of each public name, and of what a run offers."""
    found = {name: inspect.getdoc(getattr(gprune, name)) or "" for name in gprune.__all__}
    found |= {f"measure.{name}": getattr(gprune.measure, name).__doc__ for name in gprune.measure.__all__}
    found.pop("measure")
    offered = {name: value for name, value in vars(gprune.Run).items() if not name.startswith("_")}
    return found | {f"Run.{name}": inspect.getdoc(value) or "" for name, value in offered.items()}


def test_every_public_name_has_an_example():
    assert [name for name, words in described().items() if ">>> " not in words] == []


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_run(at_home, module):
    failed = doctest.testmod(importlib.import_module(f"gprune.{module}"))
    assert failed.failed == 0 and failed.attempted >= 4


def test_the_example_of_a_study_runs():
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for found in finder.find(gprune.Study, "Study", globs={}):
        assert runner.run(found).failed == 0
    assert runner.tries == 3
