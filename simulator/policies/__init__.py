"""Scheduling policies: built in, in Python, or compiled for sched_ext."""
