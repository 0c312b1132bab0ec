"""Reproduction of every table and figure of the paper by one command (section 4 and appendix).

`scale` has the sizes, and `tables` and `figures` have the rows and the study of each row. `lookup` finds results by the
keys of the graph, and `work` runs missing studies as jobs. `assembly` builds the tables, `catalogue` writes them and
reads them for the pages, and `documents` writes the reports of the tables study and repair. Nothing here imports torch:
models run in the processes of the jobs.
"""
