"""What an async run has beside: the order of its ends, its commits, its branches."""
