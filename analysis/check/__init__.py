"""Does everything add up?"""
