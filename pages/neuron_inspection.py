"""Page *Neurons*: inspector, neuron map and text lens; for a run that prunes experts, page *Experts*."""

from gprune.app.ui import address, frame

if frame.shows_experts():
    from gprune.app.pages import experts

    experts.show()
else:
    from gprune.app.pages import inspector, neuron_map, text_lens

    address.show({"inspector": inspector.show, "map": neuron_map.show, "lens": text_lens.show})
