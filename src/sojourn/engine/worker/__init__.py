"""Where users' code runs: hosts, workers, sources."""
