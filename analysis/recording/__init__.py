"""What the recording shows and what it does not: losses, unknown time, filters, the recorder."""
