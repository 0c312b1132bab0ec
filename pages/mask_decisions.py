"""Page *Masks*: pruning decisions (Fig. 3) and the mask atlas."""

from gprune.app.pages import masks
from gprune.app.ui import address

address.show({"decisions": masks.show_decisions, "atlas": masks.show_atlas})
