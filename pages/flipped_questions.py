"""Questions that flip."""

from gprune.app.pages.flipped_questions import page

page.show()
