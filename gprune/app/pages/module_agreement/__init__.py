"""The page Module agreement (Fig. 1b)."""
