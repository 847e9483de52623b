"""The control path, once per interval: measure → model → decide → apply."""
