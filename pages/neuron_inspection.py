"""One neuron, module or layer; the neurons of a layer as points; what a model predicts."""

from gprune.app.pages import neuron_map
from gprune.app.pages.inspector import page as inspector
from gprune.app.pages.text_lens import page as lens
from gprune.app.ui import places

places.show({"inspector": inspector.show, "map": neuron_map.show, "lens": lens.show})
