"""A search for the settings that the paper leaves open, on a model and a text that no result is reported on.

`plan` reads what is searched from a file, `halving` says which configurations go on, `trials` has them run
through the pipeline, and `report` writes all of them down. Everything that was run is in the cache, so that a
search that was stopped goes on where it was. What won is kept as a profile (gprune.study.profiles).
"""
