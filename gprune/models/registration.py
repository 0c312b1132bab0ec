"""Let plain `from_pretrained` load pruned checkpoints once `gprune` is imported, at no cost before.

Our model types are made known to transformers' Auto classes at the moment those classes are loaded: a finder
in front of the others watches for the one module that holds them, and for our modelling file, whose classes
cannot be had while it is itself being imported. Nothing heavy is imported before.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader

AUTO_CLASSES = "transformers.models.auto.modeling_auto"
_REGISTER = "gprune.models.export.checkpoint"
_MODELLING = "gprune.models.export.modeling_gprune"


def register() -> None:
    """Let `from_pretrained` load pruned checkpoints, at once.

    ``import gprune`` does the same as soon as transformers is loaded. This is for programs that want to see
    it done, or that keep no foreign finders in ``sys.meta_path``. It imports torch and transformers; a second
    call changes nothing.

    Example:
        >>> import gprune
        >>> gprune.register()
        >>> from transformers import AutoConfig
        >>> AutoConfig.for_model("gprune_llama").model_type
        'gprune_llama'
    """
    importlib.import_module(AUTO_CLASSES)
    # also where what registers was itself being imported when the Auto classes came
    importlib.import_module(_REGISTER).register_classes()


def register_when_loaded() -> None:
    """Register now if the Auto classes are loaded, else as soon as they are."""
    if AUTO_CLASSES in sys.modules:
        _register()
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def _register() -> None:
    # what is being imported at this moment registers at its own end
    if _REGISTER not in sys.modules:
        # by name: it needs torch, which whoever imports gprune alone does not
        importlib.import_module(_REGISTER)


def _register_classes() -> None:
    # one that is itself being imported registers at its end, when these classes are there
    if hasattr(sys.modules.get(_REGISTER), "register_classes"):
        register()


class _Watcher:
    """Finds nothing by itself; hands the one module on with a loader that registers afterwards."""

    # the base classes of finders and loaders take longer to import than all of this; they are not needed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in (AUTO_CLASSES, _MODELLING):
            return None
        # the modelling file imports the Auto classes, which are then met in their turn
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            if fullname == _MODELLING:
                sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            _call_after(spec.loader, _register if fullname == AUTO_CLASSES else _register_classes)
        return spec


def _call_after(loader: Loader, on_load: Callable[[], None]) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        on_load()

    vars(loader)["exec_module"] = exec_module
