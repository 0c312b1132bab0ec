"""Models that can be pruned: find, check, load and fingerprint them.

``identity`` and ``families`` need no torch and may be imported anywhere; ``decoder``, ``loading`` and
``tiny`` hold live models.

After `import gprune`, plain `from_pretrained` loads pruned checkpoints. The import itself loads neither torch nor
transformers: a finder, first in ``sys.meta_path``, watches for the transformers module that holds the Auto classes, and
registers the model types of this project with them as soon as that module is loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader

AUTO_CLASSES = "transformers.models.auto.modeling_auto"
_REGISTER = "gprune.models.export.checkpoint"


def register() -> None:
    """Register pruned checkpoints with transformers now, so that `from_pretrained` loads them.

    After ``import gprune`` the registration happens automatically when transformers is loaded. Call this function to
    register immediately, or if the program removes foreign finders from ``sys.meta_path``. It imports torch and
    transformers; a second call changes nothing.

    Example:
        >>> import gprune
        >>> gprune.register()
        >>> from transformers import AutoConfig
        >>> AutoConfig.for_model("gprune_llama").model_type
        'gprune_llama'
    """
    # the module registers the classes when it is imported; it is imported here because it needs torch
    importlib.import_module(_REGISTER)


def register_when_loaded() -> None:
    """Register now if the Auto classes are loaded, else when they are loaded."""
    if AUTO_CLASSES in sys.modules:
        register()
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


class _Watcher:
    """Import finder; its loader for the module of the Auto classes registers pruned checkpoints after loading it."""

    # the base classes of finders and loaders are slow to import and not needed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != AUTO_CLASSES:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            _register_after(spec.loader)
        return spec


def _register_after(loader: Loader) -> None:
    """Replace `exec_module` of a loader by a function that also registers pruned checkpoints."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        register()

    # a plain assignment to a method is an error to mypy
    vars(loader)["exec_module"] = exec_module
