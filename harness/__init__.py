"""What breaks stores and workers on purpose, and counts what they make of it. Not part of the installed package."""
