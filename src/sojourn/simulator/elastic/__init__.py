"""Elasticutor's four paradigms on a cluster in virtual time: which cores serve which shards, and
what becomes of tuples. As a flow, which is quick, or tuple by tuple."""
