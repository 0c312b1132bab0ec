"""Every table and figure of the paper by one command (section 4 and appendix).

`scale` gives sizes, `tables` (with `figures`) the rows and the study of
each, `lookup` finds their results by the keys of the graph, `work` runs the missing studies as jobs,
`assembly` builds the tables, `catalogue` writes them and reads them for the pages, and `documents` builds the
reports of the tables study and repair. Nothing here imports torch: models run in the jobs' own processes.
"""
