"""One construction a file, each a pure function."""
