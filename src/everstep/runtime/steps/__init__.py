"""Steps: named calls whose results are recorded once."""
