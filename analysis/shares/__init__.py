"""Shares of CPU time due to threads, by weight."""
