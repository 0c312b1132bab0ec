"""Write pruned models as folders and files that other programs load."""
