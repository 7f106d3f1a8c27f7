"""One HTML page about one trace, complete in itself: no network, no script needed."""
