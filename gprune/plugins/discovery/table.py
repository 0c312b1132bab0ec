"""Things by name that may become more while somebody goes through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import TypeVar

T = TypeVar("T")


class Table(Mapping[str, T]):
    """What is known of each name; the pages of several people read it at the same time."""

    def __init__(self, items: Mapping[str, T], complete: Callable[[], object] = lambda: None) -> None:
        """Begins with some.

        Args:
            items: those that are there at once.
            complete: called before anything is said of others; adds what is missing, when it is called first.
        """
        self._items = dict(items)
        self._complete = complete
        self._adding = Lock()

    def __getitem__(self, name: str) -> T:
        """The one of a name."""
        if name not in self._items:
            self._complete()
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        """Names in order."""
        self._complete()
        return iter(self._items)

    def __len__(self) -> int:
        """How many there are."""
        self._complete()
        return len(self._items)

    def add(self, name: str, item: T) -> None:
        """Puts one at the end, unless there is one of its name: in a new dictionary, for those at work."""
        with self._adding:
            self._items = {**self._items, name: self._items.get(name, item)}
