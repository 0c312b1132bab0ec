"""A run in half a minute."""

from gprune.views import overview

overview.show()
