"""The campaign of `whatif`: its cells, how they are recorded, and their tables."""
