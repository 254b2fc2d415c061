"""Bytes and text to and from the model: our own files and the formats of others."""
