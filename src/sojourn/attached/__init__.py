"""Scaling for Structured Streaming queries as people have them: what a query tells of its batches
and what Spark knows of its executors, a model of batches, and executors asked for and given back.
The query itself is not changed."""
