"""Servers that storage is tested against."""

from tests.support.postgres import postgres
from tests.support.s3 import bucket, s3_endpoint

__all__ = ["bucket", "postgres", "s3_endpoint"]
