"""Exceptions of this package, by their public names; `gprune.system.errors` has the list."""

from gprune.system.errors import *  # noqa: F403
