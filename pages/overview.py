"""Page *Overview*: the result of a run, and the checks that support it."""

from gprune.app.pages import overview
from gprune.app.ui import address

address.show({"home": overview.show})
