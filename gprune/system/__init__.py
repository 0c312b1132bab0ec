"""Errors, files, locks, processes, the machine, safe parsing. Imports no other room."""
