"""The Inspector: what one neuron, module or layer is, on every text."""
