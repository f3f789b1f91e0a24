"""An instrumented 4D-parallel torch training runtime: 3D tensor parallelism x data parallelism.

The grid (x, y, z, data) and the algorithm follow AxoNN (Singh et al., "A 4D Hybrid Algorithm to
Scale Parallel Training to Thousands of GPUs"); what differs is said where it differs.
"""
