"""Readers that turn what people have into topologies and arrivals."""
