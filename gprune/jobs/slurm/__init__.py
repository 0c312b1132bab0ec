"""Jobs that Slurm starts: the same folders as those of the queue, with Slurm's part told beside them.

The folder stays the truth. ``sbatch`` puts jobs into Slurm, ``squeue`` and ``scontrol`` say where they stand,
``scancel`` stops them; no accounting database is asked. On the node a supervisor of ours runs the job.
"""
