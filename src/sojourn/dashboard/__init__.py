"""What people and other tools see of a topology: page, REST, metrics, report. Reads ticks only."""
