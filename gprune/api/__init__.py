"""The Python API: studies run and results read from notebooks and scripts.

`import gprune` gives access to everything here (docs/python.md). A run's results come as data frames with named
columns, its figures are those of the app, and its errors have the messages of the command line. Modules are imported at
first use.
"""
