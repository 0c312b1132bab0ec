"""Mask editor."""

from gprune.app.pages.by_hand import page

page.show()
