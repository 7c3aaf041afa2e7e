"""Configuration: keys, files, presets, the settings that come of them, and what happens when they change. Imported only where it is used."""
