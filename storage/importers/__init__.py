"""Importers of published artifacts into run directories, and back."""
