"""Sojourn keeps a topology's sojourn time under a target with the fewest processors."""

__version__ = "0.1.0"
