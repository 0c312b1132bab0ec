"""Many studies: the tables of the paper, sweeps, and the scheduler that runs them as jobs."""
