"""What CPUs did, their topology, and which of them threads may use."""
