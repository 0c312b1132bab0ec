"""The page Pruning decisions (Fig. 3)."""
