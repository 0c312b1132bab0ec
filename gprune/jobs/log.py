"""What a run prints goes to its log, and never decides whether it succeeds: a full disk loses words."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import TextIO

from gprune.store.folder import is_full


class Forgiving(io.TextIOBase):
    """A stream that loses what a full disk or quota does not take."""

    def __init__(self, stream: TextIO) -> None:
        """Stands in for a stream."""
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As the stream's."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """As the stream's."""
        return self._stream.errors

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor, where there is one."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Writes a text, or loses it.

        Raises:
            OSError: the stream does not take it, and the disk is not full.
        """
        with _losing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Hands on what is still held back.

        Raises:
            OSError: as `write`.
        """
        with _losing():
            self._stream.flush()


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise


@contextlib.contextmanager
def forgiving() -> Iterator[None]:
    """What is printed while the context lasts may be lost."""
    with (
        contextlib.redirect_stdout(Forgiving(sys.stdout)),
        contextlib.redirect_stderr(Forgiving(sys.stderr)),
    ):
        yield
