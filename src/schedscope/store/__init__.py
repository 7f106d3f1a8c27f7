"""The ground floor: what a trace is, how it is opened, kept, cut and read."""
