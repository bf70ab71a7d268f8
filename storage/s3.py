"""Files in an S3 bucket, through boto3.

A PUT replaces an object as a whole or not at all, and a listing shows what was
written before it. Where the service knows conditional writes (AWS, MinIO, R2,
Ceph), a name can be created only while it is free. Address and credentials are
the standard ones: `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, a profile, or the machine's role.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from typing import Any

from memprobe.errors import MissingPrerequisite, StorageError, UsageError

_ENVIRONMENT = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
_URL = re.compile(r"s3://([^/@:?#]+)(?:/(.*))?", re.DOTALL)
_ABSENT = ("404", "NoSuchKey", "NotFound")
_TAKEN = ("412", "PreconditionFailed", "409", "ConditionalRequestConflict")
_UNKNOWN = ("501", "NotImplemented")

_clients: dict[tuple[str | None, ...], Any] = {}
_making = threading.Lock()


class ConditionUnknown(Exception):
    """The service cannot create a name only while it is free."""


def _client() -> Any:
    """The process's client for the present address and credentials; threads may share it."""
    place = (str(os.getpid()), *(os.environ.get(name) for name in _ENVIRONMENT))
    with _making:
        if place not in _clients:
            try:
                import boto3
                from botocore.config import Config
            except ImportError as error:
                raise MissingPrerequisite(
                    f"runs at s3:// need boto3 ({error}): pip install 'memprobe-audit[s3]'"
                ) from error
            config = Config(
                retries={"mode": "standard", "total_max_attempts": 5},
                connect_timeout=10,
                read_timeout=60,
                max_pool_connections=32,
            )
            _clients[place] = boto3.session.Session().client("s3", config=config)
        return _clients[place]


class S3Files:
    """Objects below `s3://BUCKET/PREFIX`; see `storage.files.Files`. Small and picklable."""

    def __init__(self, url: str) -> None:
        match = _URL.fullmatch(url.rstrip("/"))
        if match is None:
            raise UsageError(
                "an S3 location is s3://BUCKET/PREFIX; keys and passwords go into the "
                "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), the service's address "
                "into AWS_ENDPOINT_URL"
            )
        self.root = url.rstrip("/")
        self._bucket, prefix = match[1], match[2] or ""
        self._below = f"{prefix}/" if prefix else ""

    def read(self, path: str) -> bytes:
        return self.read_tagged(path)[0]

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        """The bytes of an object and its version's tag; raises `FileNotFoundError`."""
        with self._told("read", path):
            found = _client().get_object(**self._at(path))
            return bytes(found["Body"].read()), str(found["ETag"])

    def write(self, path: str, data: bytes) -> None:
        with self._told("written", path):
            _client().put_object(**self._at(path), Body=data)

    def create(self, path: str, data: bytes) -> bool:
        """Write an object unless there is one; tells whether it was written.

        Raises `ConditionUnknown` where the service has no conditional writes.
        """
        return self._write_if(path, data, IfNoneMatch="*")

    def replace(self, path: str, data: bytes, tag: str) -> bool:
        """Write over the version of that tag and no other; as `create` otherwise."""
        return self._write_if(path, data, IfMatch=tag)

    def _write_if(self, path: str, data: bytes, **condition: str) -> bool:
        with self._told("written", path):
            try:
                _client().put_object(**self._at(path), Body=data, **condition)
            except Exception as error:
                code = _code(error)
                if code in _TAKEN or code in _ABSENT:
                    return False
                if code in _UNKNOWN:
                    raise ConditionUnknown(code) from error
                raise
        return True

    def size(self, path: str) -> int | None:
        try:
            with self._told("read", path):
                return int(_client().head_object(**self._at(path))["ContentLength"])
        except FileNotFoundError:
            return None

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._told("deleted", path):
            _client().delete_object(**self._at(path))

    def find(self, prefix: str, suffix: str) -> list[str]:
        return sorted(self.listing(prefix, suffix))

    def listing(self, prefix: str, suffix: str) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for page in self._pages(prefix):
            for item in page.get("Contents", ()):
                path = str(item["Key"]).removeprefix(self._below)
                if path.endswith(suffix) and not path.rsplit("/", 1)[-1].startswith("."):
                    found[path] = int(item["Size"]), str(item["ETag"])
        return found

    def folders(self) -> list[str]:
        """Names right below the root that have something below them, sorted."""
        found = {
            str(item["Prefix"]).removeprefix(self._below).rstrip("/")
            for page in self._pages("", Delimiter="/")
            for item in page.get("CommonPrefixes", ())
        }
        return sorted(found)

    def _pages(self, prefix: str, **more: str) -> Iterator[Any]:
        below = self._below + (f"{prefix}/" if prefix else "")
        with self._told("listed", prefix):
            pages = _client().get_paginator("list_objects_v2")
            yield from pages.paginate(Bucket=self._bucket, Prefix=below, **more)

    def _at(self, path: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._below + path}

    @contextlib.contextmanager
    def _told(self, verb: str, path: str) -> Iterator[None]:
        """What boto3 raises as what it means here; none of its messages holds a secret."""
        where = f"{self.root}/{path}".rstrip("/")
        try:
            yield
        except (MissingPrerequisite, ConditionUnknown):
            raise
        except Exception as error:
            name, code = type(error).__name__, _code(error)
            if code in _ABSENT:
                raise FileNotFoundError(where) from error
            if code == "NoSuchBucket":
                raise MissingPrerequisite(
                    f"{self.root}: there is no bucket {self._bucket!r} at "
                    f"{_client().meta.endpoint_url}; create it, or correct --runs"
                ) from error
            if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken") or (
                "Credentials" in name
            ):
                raise MissingPrerequisite(
                    f"{where} could not be {verb}: {_plain(error)}. Set AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                ) from error
            if name in ("EndpointConnectionError", "ConnectTimeoutError", "SSLError"):
                raise MissingPrerequisite(
                    f"{where} could not be {verb}: no S3 service answers at "
                    f"{_client().meta.endpoint_url} (AWS_ENDPOINT_URL)"
                ) from error
            if code in ("403", "AccessDenied"):
                raise StorageError(f"{where} could not be {verb}: access denied") from error
            raise StorageError(f"{where} could not be {verb}: {_plain(error)}") from error


def _code(error: Exception) -> str:
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _plain(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
