"""Text lens."""

from gprune.app.pages.text_lens import page

page.show()
