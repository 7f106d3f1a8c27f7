"""Who threads are: names, services, control groups, classes."""
