"""What a run may use, when it saves by itself, and what stops it."""
