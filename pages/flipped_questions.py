"""Questions that flip."""

from gprune.views.flipped_questions import page

page.show()
