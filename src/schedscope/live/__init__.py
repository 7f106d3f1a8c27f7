"""What happens on this host now: `schedscope top`."""
