"""What commands print: tables, values, timelines, trees."""
