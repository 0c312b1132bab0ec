"""The neurons of a layer as points."""

from gprune.views.neuron_map import page

page.show()
