"""How long did requests take, and what for?"""
