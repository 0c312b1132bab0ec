"""Measure models: perplexity, zero-shot accuracy and speed."""
