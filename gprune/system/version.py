"""The version of this package: the one place that a release changes."""

__version__ = "0.1.0"
