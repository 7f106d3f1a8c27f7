"""A fault campaign: damage real captures whose truth is known, and judge the answers about them.

`recording` reads and writes ftrace captures record by record, `truth` says what happened,
`mutations` (and `mutations_*`) damage a recording, `comparison` and `figures` compare an answer
with the truth, `peers` asks other tools, `campaign` runs it all and `page` writes it down.
"""
