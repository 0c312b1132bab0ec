"""Who is kept (figure 3), and which units a choice decides."""

from gprune.app.pages.mask_atlas import page as atlas
from gprune.app.pages.pruning_decisions import page as decisions
from gprune.app.ui import places

places.show({"decisions": decisions.show, "atlas": atlas.show})
