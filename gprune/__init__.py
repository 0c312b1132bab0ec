"""GPrune Studio: why a pruning decision is fragile, and what to do about it.

Importing this package imports nothing heavy; ``python -m gprune --help`` lists the commands.
"""

__version__ = "0.1.0"
