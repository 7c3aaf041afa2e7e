"""Files, rows and bits that are changed behind a store's back."""
