"""What crosses between processes, and where it goes."""
