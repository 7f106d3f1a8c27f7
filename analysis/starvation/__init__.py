"""Who starved, behind whom?"""
