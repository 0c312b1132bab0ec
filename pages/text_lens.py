"""Text lens."""

from gprune.views.text_lens import page

page.show()
