"""Runs of a workload under a policy, and replays of recordings."""
