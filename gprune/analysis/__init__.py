"""Records turned into the small tables and distributions that the pages draw (numpy and pandas only)."""
