"""One file per input format; each ends in the fact tables declared in `schema`."""
