"""What CPUs did, how they lie, and which of them threads may use."""
