"""What is Spark's: the session, the clock, the task that carries rows."""
