"""What of a CPU is due to whom, by weight."""
