"""Behavior-consistent modularization (BCM), section 3.1: groups of neurons that compete in ranking.

`partition.modularize` is the stage. `agreement` compares two finished partitions without torch, so nothing is
imported here that imports torch.
"""
