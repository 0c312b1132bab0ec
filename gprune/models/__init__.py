"""Models that can be pruned: find, check, load and fingerprint them.

``identity`` and ``families`` need no torch and may be imported anywhere; ``decoder``, ``loading`` and
``tiny`` hold live models.

Once `gprune` is imported, plain `from_pretrained` loads pruned checkpoints, at no cost before. Our model types are made
known to transformers' Auto classes at the moment those classes are loaded: a finder in front of the others watches for
the one module that holds them. Nothing heavy is imported before.
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
    # registers at its end; by name, as it needs torch, which whoever imports gprune alone does not
    importlib.import_module(_REGISTER)


def register_when_loaded() -> None:
    """Register now if the Auto classes are loaded, else as soon as they are."""
    if AUTO_CLASSES in sys.modules:
        register()
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


class _Watcher:
    """Finds nothing by itself; hands the one module on with a loader that registers afterwards."""

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
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        register()

    vars(loader)["exec_module"] = exec_module
