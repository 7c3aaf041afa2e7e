"""Threads, how they wake each other up, and the locks of stores."""
