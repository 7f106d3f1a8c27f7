"""FreeBSD's ministat."""
