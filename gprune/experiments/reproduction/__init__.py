"""Every table and figure of the paper by one command (section 4 and appendix).

`scale` says how large, `tables` (with `figures` and `throughput`) which rows need which studies, `answers`
(with `runs`) looks their results up by the keys of the graph, `schedule` has the missing studies run as jobs,
`assembly`, `means`, `beside` and `writing` make tables of the answers, and `catalogue` lists them for the
pages. Nothing here imports torch: models run in the jobs' own processes.
"""
