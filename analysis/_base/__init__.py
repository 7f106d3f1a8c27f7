"""What questions share: waits, quantiles, grouping, topology, what a question needs, policies."""
