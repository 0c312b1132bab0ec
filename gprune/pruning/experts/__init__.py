"""Pruning of mixture-of-experts models: statistics of experts, criteria, rank drift, masks, and the smaller model."""
