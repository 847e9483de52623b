"""The data path on Spark: the only part that needs Java."""
