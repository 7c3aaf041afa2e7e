"""What commands show, as data."""
