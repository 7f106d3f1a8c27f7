"""How long did requests take, and what was the time spent on?"""
