"""Many traces: one summary each, made by several processes or hosts, and what they show
together.
"""
