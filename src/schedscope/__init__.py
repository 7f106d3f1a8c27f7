"""schedscope: capture, analyse and replay CPU-scheduler traces."""
