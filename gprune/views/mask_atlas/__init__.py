"""The page Mask atlas."""
