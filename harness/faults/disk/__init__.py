"""Disks that fail, fill up, or lose their power."""
