"""AllReduce when a GPU is late: schedules with proofs, and compilers that turn them into programs."""

__version__ = "0.1.0"
