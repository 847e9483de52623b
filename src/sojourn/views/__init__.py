"""Translates records into ticks that can be shown: of control, of attached queries, of profiles."""
