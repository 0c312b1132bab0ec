"""Which pruned model to take: what each loses against what it costs, over all runs of one dense model."""
