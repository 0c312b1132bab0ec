"""A run in half a minute."""

from gprune.views.overview import page

page.show()
