"""The page Rank drift (Fig. 1a)."""
