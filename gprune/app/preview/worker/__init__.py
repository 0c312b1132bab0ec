"""The worker of the live preview: a process that holds one dense model and answers requests; loads torch."""
