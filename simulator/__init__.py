"""Workload extraction, machine, run and fidelity: the Python face of the native engine."""
