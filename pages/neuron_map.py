"""The neurons of a layer as points."""

from gprune.app.pages.neuron_map import page

page.show()
