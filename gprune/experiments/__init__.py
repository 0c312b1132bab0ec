"""Runs of many studies: the tables of the paper, sweeps, and the scheduler that runs studies as jobs."""
