"""GPrune Studio: structured pruning of language models, and analysis of its dependence on the calibration text.

Public names (docs/python.md) are imported on first use, so that importing the package is fast. After the import,
``AutoModelForCausalLM.from_pretrained`` loads pruned checkpoints without remote code. ``python -m gprune --help`` lists
the commands.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gprune.models import register as register
from gprune.models import register_when_loaded
from gprune.system.installation import __version__ as __version__

if TYPE_CHECKING:
    from gprune.api import measure as measure
    from gprune.api.held import prune as prune
    from gprune.api.held import save as save
    from gprune.api.held import scores as scores
    from gprune.api.opening import open as open
    from gprune.api.opening import run as run
    from gprune.api.opening import runs as runs
    from gprune.api.preview import Preview as Preview
    from gprune.api.results import Run as Run
    from gprune.study import Study as Study

__all__ = ["Preview", "Run", "Study", "measure", "open", "prune", "run", "runs", "save", "scores"]

_MODULES = {
    "Preview": "gprune.api.preview",
    "Run": "gprune.api.results",
    "Study": "gprune.study",
    "measure": "gprune.api.measure",
    "open": "gprune.api.opening",
    "prune": "gprune.api.held",
    "run": "gprune.api.opening",
    "runs": "gprune.api.opening",
    "save": "gprune.api.held",
    "scores": "gprune.api.held",
    "errors": "gprune.errors",
    "testing": "gprune.testing",
}
"""module of each public name; keep in sync with the imports for type checkers above"""

register_when_loaded()


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    # the name of a module, such as errors, stands for the module itself
    value = globals()[name] = getattr(module, name, module)
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})
