"""What to do with a damaged store: save what is provable into a new one, go back to what is good."""
