"""What the executor of a worker has that others may lack, as tags of its node: what `ps.on_tag` asks for.

Spark says two things of an executor. Its resources, by the session's resource profile: a task that was given a `gpu`
runs where one is. And its attributes, which whoever starts executors puts into their environment, where Spark reads
them too: `SPARK_EXECUTOR_ATTRIBUTE_ZONE=a` is the tag `ZONE=a`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.deploy.line.messages import TAGS_MAX

ATTRIBUTE = "SPARK_EXECUTOR_ATTRIBUTE_"
TAG_LENGTH_MAX = 200


def node_tags(resources: Iterable[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Tags in order of the alphabet; what is too long for a name of anything is left out."""
    told = {name.removeprefix(ATTRIBUTE): value for name, value in environment.items() if name.startswith(ATTRIBUTE)}
    found = {*resources, *(f"{name}={value}" for name, value in told.items() if name)}
    return tuple(sorted(tag for tag in found if 0 < len(tag) <= TAG_LENGTH_MAX and tag.isprintable())[:TAGS_MAX])
