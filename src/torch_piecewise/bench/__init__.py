"""The benchmark and the demo: workloads, models, and how they are measured against plain Inductor.

Nothing of the backend imports this package.
"""
