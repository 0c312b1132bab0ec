"""A run in half a minute."""

from gprune.app.pages import overview
from gprune.app.ui import places

places.show({"home": overview.show})
