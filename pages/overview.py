"""A run in half a minute."""

from gprune.app.pages.overview import page
from gprune.app.ui import places

places.show({"home": page.show})
