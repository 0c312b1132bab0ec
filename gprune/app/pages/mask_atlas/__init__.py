"""The tab Mask atlas."""
