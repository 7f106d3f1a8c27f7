"""Workloads: threads, their programs and the machine, written by hand, generated or read."""
