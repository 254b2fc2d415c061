"""The events of a run for other tools: Parquet tables, NCCL Inspector JSON lines."""

from __future__ import annotations
