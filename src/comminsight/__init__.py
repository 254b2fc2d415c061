"""CommInsight: which rank, step, communicator and link made a distributed job hang or slow down."""

__version__ = "0.1.0"
