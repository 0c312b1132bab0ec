"""The tab Neuron map."""
