"""Compute the tables and distributions that the pages display from records (numpy and pandas only)."""
