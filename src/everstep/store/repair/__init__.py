"""Recovery from damage: write a new good store, or go back to the newest good state."""
