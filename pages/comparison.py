"""Methods side by side."""

from gprune.views import comparison

comparison.show()
