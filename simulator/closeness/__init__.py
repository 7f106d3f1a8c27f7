"""How close a replay is to recordings of the same workload."""
