"""A laboratory: real kernels of other releases and architectures, in an emulator.

`python -m research.lab` boots them, records known workloads with the project's own collectors, and
compares schedscope's answers with the kernel's own reports. See research/lab/README.md.
"""
