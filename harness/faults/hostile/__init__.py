"""Files and values that an enemy made."""
