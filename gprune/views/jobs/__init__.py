"""The page Launch & jobs."""
