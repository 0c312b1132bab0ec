"""Metrics and methods that other packages bring, as their metadata and their source text declare them.

Nothing here imports a plug-in: what runs one is `gprune.plugins`, in the process that computes.
"""

from gprune.plugins.discovery.declaration import Plugin
from gprune.plugins.discovery.entry_points import Fault, Found, Installed, Table, found
