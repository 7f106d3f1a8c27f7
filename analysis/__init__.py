"""One file per question, each a function of a trace."""
