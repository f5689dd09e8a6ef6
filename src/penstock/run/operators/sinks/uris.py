"""Folders by URI: how people may read them, and how Spark calls them. Paths stay as they are.

A URI may hold keys: before the `@` (`s3://KEY:SECRET@bucket/path`) and behind the `?`. `pyarrow` wants to have them;
texts, manifests and Spark's logs must not (`test_no_text_shows_a_key`). Of Azure's URIs the name before the `@` is the
container, and part of the place.

    >>> shown("s3://KEY:SECRET@bucket/a%20b?region=eu-west-1")
    's3://bucket/a%20b'
    >>> hadoop_path("s3://KEY:SECRET@bucket/a%20b?region=eu-west-1")
    's3a://bucket/a b'
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs"}  # where Spark's own name for a kind of store differs from Arrow's
_CONTAINER_FIRST = ("abfs", "abfss")
# A secret may hold slashes, which its owner forgot to escape; digits behind a colon are a port.
_URI = re.compile(r"([A-Za-z][\w+.-]*)://(?:([^/:@?]*)(?::(?!\d+(?:/|$))[^@?]*)?@)?([^/?]*)([^?]*)", re.ASCII)


def shown(given: str) -> str:
    """A path as it is; a URI without keys."""
    if (found := _URI.match(given)) is None or found[1] == "file":
        return given
    return f"{found[1]}://{_place(found)}{found[4]}"


def hadoop_path(given: str) -> str:
    """A URI as Spark's readers take it: nothing is escaped."""
    root, path = _hadoop(given)
    return root + path


def hadoop_uri(given: str, name: str) -> str:
    """The URI of a file in a folder, with escapes, as Spark's logs have it; of the folder's URI, which has escapes."""
    root, path = _hadoop(given)
    return root + quote(f"{path.rstrip('/')}/{name}")


def _hadoop(given: str) -> tuple[str, str]:
    """What comes before the path, and the path without escapes."""
    found = _URI.match(given)
    if found is None:
        return "", given
    return f"{_HADOOP_SCHEMES.get(found[1], found[1])}://{_place(found)}", unquote(found[4])


def _place(found: re.Match[str]) -> str:
    container = f"{found[2]}@" if found[2] and found[1] in _CONTAINER_FIRST else ""
    return container + found[3]
