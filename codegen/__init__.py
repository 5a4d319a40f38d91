"""Schedule → operations → program → text, and back."""
