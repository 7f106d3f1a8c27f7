"""How answers are shown: one registry of result columns, and a table as text or HTML from it.

The command line, the report and notebooks print through here; nothing here depends on them.
"""
