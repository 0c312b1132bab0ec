"""How a broken contract is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gprune.plugins.discovery.declaration import require_facts
from gprune.system.errors import PluginError


class ContractError(AssertionError):
    """A plug-in does not hold what it must; the message says what, on what, and what to do."""


def require(holds: bool, words: str) -> None:
    """Raises `ContractError` with some words unless something holds."""
    if not holds:
        raise ContractError(words)


def declares(kind: str, **facts: object) -> None:
    """Checks what a plug-in says of itself, as its discovery will.

    Args:
        kind: metric or method.
        facts: the fields that are read from its source.

    Raises:
        ContractError: it would be left out.
    """
    with on(f"the declaration of the {kind}"):
        require_facts(facts)


@contextmanager
def on(case: str) -> Iterator[None]:
    """Says on which made-up case the plug-in failed, or gave what cannot be used.

    Raises:
        ContractError: it did.
    """
    try:
        yield
    except PluginError as error:
        raise ContractError(f"{case}: {error}") from error
