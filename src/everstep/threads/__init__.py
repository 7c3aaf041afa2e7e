"""Background threads, wake-ups between threads, and the locks of stores."""
