"""Artifacts, catalog and ledger."""
