"""Sums and exact quantiles of groups, in memory that does not grow with what is grouped."""
