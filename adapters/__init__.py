"""The outside world behind MemProbe's ports."""
