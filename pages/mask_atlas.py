"""Which units a choice decides."""

from gprune.app.pages.mask_atlas import page

page.show()
