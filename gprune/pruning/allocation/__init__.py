"""Allocations of the baselines of section 4, from scores to masks."""
