"""Many studies of one kind: a study and the values that its fields take, run through the queue of jobs.

`plan` reads them from a file and makes the studies, `standing` says where each of them stands, and `running`
has those run that are missing. Results lie in the one store, so that what several studies need is computed
once; each study leaves a run of its own, named after what it varies.
"""
