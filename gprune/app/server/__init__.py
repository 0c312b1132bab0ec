"""The app's door: who may come in, and what the server that stands behind it was started for.

`guard` decides on each request before Streamlit sees it, `forms` are the small pages of those who stay
outside, `names` the addresses that the server answers under, `terms` what it may do once they are in, and
`serving` starts it.
"""

from gprune.app.server.server_options import ServerOptions, current_terms, open_with, require_trust

__all__ = ["ServerOptions", "current_terms", "open_with", "require_trust"]
