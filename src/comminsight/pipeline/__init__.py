"""Wiring: files and sessions in, engine, measures and rules over them, reports out."""
