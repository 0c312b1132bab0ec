"""Public exceptions of this package, defined in `gprune.system.errors`."""

from gprune.system.errors import *  # noqa: F403
