"""An S3 service for tests: moto's server on loopback, in this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

KEY, SECRET = "AKIATESTTESTTEST", "s3cr3t/Of+The=Bucket"


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own, and the variables that lead there."""

    name: str
    endpoint: str

    @property
    def env(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def url(self, prefix: str = "") -> str:
        return f"s3://{self.name}/{prefix}".rstrip("/")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a service for the session."""
    server = pytest.importorskip("moto.server", reason="moto's server is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    service = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    service.start()
    try:
        host, port = service.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        service.stop()


@pytest.fixture
def bucket(
    s3_endpoint: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """A new bucket, with this process's environment leading to it."""
    import hashlib

    import boto3

    name = "test-" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:24]
    new = Bucket(name, s3_endpoint)
    for variable, value in new.env.items():
        monkeypatch.setenv(variable, value)
    for variable in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_REGION"):
        monkeypatch.delenv(variable, raising=False)
    boto3.session.Session().client("s3").create_bucket(Bucket=name)
    return new
