"""Timelines: which threads ran and waited, with exact shares of time per pixel."""
