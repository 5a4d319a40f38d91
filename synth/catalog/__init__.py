"""Solved templates, kept as data."""
