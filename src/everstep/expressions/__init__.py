"""The small language of conditions and values."""
