"""A laboratory: real kernels of other releases and architectures, in an emulator.

`python -m research.lab` boots them, records known workloads with the project's own collectors, and
compares what schedscope says with what the kernel says. See research/lab/README.md.
"""
