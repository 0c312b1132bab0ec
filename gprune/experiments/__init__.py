"""Many studies: the tables of the paper, sweeps, searches, and the scheduler that runs them as jobs."""
