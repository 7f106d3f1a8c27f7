"""Timelines: who ran and who waited, drawn so that a pixel shows what its time holds."""
