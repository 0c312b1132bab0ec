"""Page *Neurons*: inspector, neuron map and text lens."""

from gprune.app.pages import inspector, neuron_map, text_lens
from gprune.app.ui import address

address.show({"inspector": inspector.show, "map": neuron_map.show, "lens": text_lens.show})
