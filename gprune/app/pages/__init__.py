"""The pages of the app, a folder each."""
