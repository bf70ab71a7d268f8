"""One file per memory system."""
