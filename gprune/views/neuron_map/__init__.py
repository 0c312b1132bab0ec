"""The page Neuron map."""
