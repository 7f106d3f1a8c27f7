"""The identity of threads: names, services, control groups, classes."""
