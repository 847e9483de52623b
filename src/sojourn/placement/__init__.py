"""Where work is done: which worker serves which shard. Pure."""
