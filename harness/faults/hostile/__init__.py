"""Files and values that an attacker made."""
