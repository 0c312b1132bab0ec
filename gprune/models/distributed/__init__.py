"""One model computed by several processes, each with a GPU of its own.

``launch`` starts the processes, ``process_group`` shares out the work among them, ``rpc`` carries orders and
errors between them, and ``heartbeat`` notices when one of them is gone.
"""
