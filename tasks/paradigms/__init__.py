"""The stages of the paradigms suite."""
