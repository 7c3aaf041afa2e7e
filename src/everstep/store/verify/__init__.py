"""Verification of a store (`verify`), and checks of how it is configured and kept (`doctor`)."""
