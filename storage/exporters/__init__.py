"""Writing a run as published artifacts."""
