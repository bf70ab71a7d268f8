"""What you can run."""
