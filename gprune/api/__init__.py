"""The Python API, which runs studies and reads results in notebooks and scripts.

`import gprune` gives access to everything here (docs/python.md). A run's results are data frames with named
columns, its figures are those of the app, and its errors have the messages of the command line. Modules are imported at
first use.
"""
