"""The tab Module agreement (Fig. 1b)."""
