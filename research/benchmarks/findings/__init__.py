"""Loads that must produce a finding, and similar loads that must not.

`cases.toml` has them, `cases` reads it; `load.c` is what their threads do and `scene.sh` records
one of them; `places` says where: on this host, or in a machine of the laboratory; `judge` says
whether the finding is there, and `page` keeps the table `findings`.
"""
