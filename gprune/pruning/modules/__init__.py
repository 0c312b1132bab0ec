"""Behavior-consistent modularization (BCM), section 3.1: groups of neurons that compete in ranking.

`partition.modularize` is the stage. `agreement` compares two finished partitions and needs no torch,
which is why nothing is imported here.
"""
