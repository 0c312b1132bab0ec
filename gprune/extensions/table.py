"""Things by name that may become more while somebody goes through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import TypeVar

T = TypeVar("T")


class Table(Mapping[str, T]):
    """What is known of each name; the pages of several people read it at the same time."""

    def __init__(self, items: Mapping[str, T]) -> None:
        """Begins with some."""
        self._items = dict(items)
        self._adding = Lock()

    def __getitem__(self, name: str) -> T:
        """The one of a name."""
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        """Names in order."""
        return iter(self._items)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._items)

    def add(self, name: str, item: T) -> None:
        """Puts one at the end, unless there is one of its name: in a new dictionary, for those at work."""
        with self._adding:
            self._items = {**self._items, name: self._items.get(name, item)}
