"""One neuron, module or layer."""

from gprune.app.pages.inspector import page

page.show()
