"""A fault campaign: damage real captures whose truth is known, and judge what is said of them.

`recording` reads and writes ftrace captures record by record, `truth` says what happened,
`mutations` (and `mutations_*`) damage a recording, `comparison` and `figures` hold an answer
against the truth, `peers` asks other tools, `campaign` runs it all and `page` writes it down.
"""
