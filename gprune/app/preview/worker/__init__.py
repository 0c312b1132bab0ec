"""The worker of the live preview: a process that holds one model and measures what the app asks.

``worker`` is its life and ``model`` what it holds; ``protocol``, which needs no torch, is how
gprune.app.preview talks to it.
"""
