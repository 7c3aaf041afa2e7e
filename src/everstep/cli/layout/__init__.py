"""Arranges output for a terminal of any width: columns, times, lines of words, and progress bars. Knows no command."""
