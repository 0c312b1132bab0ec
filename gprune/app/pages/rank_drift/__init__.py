"""The tab Rank drift (Fig. 1a)."""
