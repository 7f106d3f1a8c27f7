"""The ledger of waits: whose, how long at least and at most, in which groups."""
