"""What another text changes: ranks of neurons (figure 1a) and modules (figure 1b)."""

from gprune.app.pages import drift
from gprune.app.ui import address

address.show({"drift": drift.show_ranks, "agreement": drift.show_agreement})
