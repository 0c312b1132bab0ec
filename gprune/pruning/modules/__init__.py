"""Behavior-consistent modularization (BCM), section 3.1: which neurons are ranked against each other.

`partition.modularize` is the stage. `agreement` compares two finished partitions and needs no torch,
which is why nothing is imported here.
"""
