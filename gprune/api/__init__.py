"""The Python API: studies run and results read from notebooks and scripts.

`import gprune` offers what is here by name (docs/python.md). A run's results come as data frames with named
columns, its figures are the app's own, and whatever is wrong is said by the errors and in the sentences of
the command line. Nothing here is loaded before it is used.
"""
