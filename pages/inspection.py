"""One neuron, module or layer."""

from gprune.views.inspector import page

page.show()
