"""The driver's side of a started topology: its supervisor, its hub, its commits."""
