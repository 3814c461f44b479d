"""The jobs: replaying captures, driving engines, repairing an index."""
