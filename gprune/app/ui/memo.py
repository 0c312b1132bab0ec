"""Small results that are computed once for their keys, and shared by all who look at them."""

import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import pandas as pd

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class _Entry:
    """What is known for one set of arguments; the lock is held while it is computed."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    known: bool = False
    value: Any = None


def memoized(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declares a function whose last results are kept; they are read-only to all who get them.

    An argument whose name begins with `_` is no part of the key: the others decide what it holds. Of several
    threads that ask for the same one computes it; an error is kept for nobody.
    """

    def declared(make: Callable[P, R]) -> Callable[P, R]:
        names = list(inspect.signature(make).parameters)
        entries: OrderedDict[Any, _Entry] = OrderedDict()
        guard = threading.Lock()

        @wraps(make)
        def found(*args: P.args, **options: P.kwargs) -> R:
            given = dict(zip(names, args, strict=False)) | options
            key = tuple((name, value) for name, value in sorted(given.items()) if name[0] != "_")
            with guard:
                entry = entries.setdefault(key, _Entry())
                entries.move_to_end(key)
                while len(entries) > most:
                    entries.popitem(last=False)
            with entry.lock:
                if not entry.known:
                    entry.value, entry.known = make(*args, **options), True
            # a column that a reader adds is no column of the others
            return entry.value.copy(deep=False) if isinstance(entry.value, pd.DataFrame) else entry.value

        return found

    return declared


_drawn: ContextVar[dict[Any, Any] | None] = ContextVar("drawn", default=None)
"""what this thread has made, by function and arguments, while it draws a page; else None"""


@contextmanager
def one_draw() -> Iterator[None]:
    """Has this thread make what is declared `once_a_draw` once for the same arguments, until it leaves."""
    before = _drawn.set({})
    try:
        yield
    finally:
        _drawn.reset(before)


def once_a_draw(make: Callable[P, R]) -> Callable[P, R]:
    """Declares a function that several cards of a page ask with the same objects, and whose files may change.

    So all of them tell the same, and the next drawing looks at the files again; what is drawn by itself, as
    a fragment, always looks. The result is read-only to all who get it; an error is kept for nobody.
    """

    @wraps(make)
    def found(*args: P.args, **options: P.kwargs) -> R:
        drawn, key = _drawn.get(), (make, *map(id, args), *((name, id(one)) for name, one in options.items()))
        if drawn is None:
            return make(*args, **options)
        if key not in drawn:
            # the arguments are held, so that no other object gets their identity meanwhile
            drawn[key] = make(*args, **options), args, options
        return cast("R", drawn[key][0])

    return found
