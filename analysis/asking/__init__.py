"""How a question is put: arguments, needs, command; and how tables are read for it."""
