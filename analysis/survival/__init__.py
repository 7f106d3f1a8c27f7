"""What share of waits lasts longer than t, and how certain is that?"""
