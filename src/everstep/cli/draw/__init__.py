"""The output of commands: tables, values, timelines, trees."""
