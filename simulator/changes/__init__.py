"""What if one setting were different: changes, ranges of the answer, and how far to trust it."""
