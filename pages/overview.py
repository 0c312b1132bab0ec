"""A run in half a minute."""

from gprune.app.pages import overview
from gprune.app.ui import address

address.show({"home": overview.show})
