"""The masks of a run by method, as data frames."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from gprune.api import frames
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run as Loaded
from gprune.study.methods import METHODS
from gprune.study.settings import require_choice


class Masks(Mapping[str, pd.DataFrame]):
    """The masks of a run's methods; a name that is none of them is said so, with those that are."""

    def __init__(self, loaded: Loaded) -> None:
        """Binds a run; nothing is read."""
        self._loaded = loaded

    def __iter__(self) -> Iterator[str]:
        """The methods whose masks are there, in the order of the study."""
        loaded = self._loaded
        cutting = (name for name in loaded.study.methods if METHODS[name].decision != "none")
        return (name for name in cutting if loaded.has(stages.masks, METHODS[name].masks))

    def __len__(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Whether the masks of a method are there."""
        return name in list(self)

    def __getitem__(self, name: str) -> pd.DataFrame:
        """One row a unit, and whether it is kept.

        Raises:
            SettingsError: the run has no such method.
            StoreError: it has not come that far.
        """
        cutting = [one for one in self._loaded.study.methods if METHODS[one].decision != "none"]
        require_choice("method", name, tuple(cutting))
        return frames.masks(self._loaded.load(stages.masks, METHODS[name].masks))

    def get(self, name: str, default: Any = None) -> Any:
        """The frame of a method whose masks are there, or what stands for it."""
        return self[name] if name in self else default

    def __repr__(self) -> str:
        """The methods."""
        return f"<masks of {', '.join(self)}>"
