"""The page that reads a text with the dense model and with pruned ones, token by token."""
