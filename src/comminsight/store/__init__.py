"""The archive of runs: objects, the catalog of what they hold, and columns for queries."""
