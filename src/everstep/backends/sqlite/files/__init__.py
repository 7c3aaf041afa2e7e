"""The file of a store and the files beside it: created, opened, told apart, synced."""
