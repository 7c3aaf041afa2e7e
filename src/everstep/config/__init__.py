"""Configuration: keys, files, presets, the resulting settings, and reloading. Imported only when used."""
