"""The app's door: who may come in, and what the server that stands behind it was started for.

`auth` decides on each request before Streamlit sees it, and `serving` starts what stands behind it.
"""

from gprune.app.server.server_options import ServerOptions, current_terms, open_with, require_trust
