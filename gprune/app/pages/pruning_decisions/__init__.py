"""The tab Pruning decisions (Fig. 3)."""
