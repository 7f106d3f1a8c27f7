"""The ledger of waits: their threads, their bounds, and their groups."""
