"""Runs tests on another copy of the package: `make sanitise` puts one with an instrumented core at the first argument.

An editable install is found by an import hook, which would win over any path; the hook is set aside here.
"""

from __future__ import annotations

import sys

import pytest

if __name__ == "__main__":
    folder, *tests = sys.argv[1:]
    sys.meta_path = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
    sys.path.insert(0, folder)
    from penstock import _core

    if not str(_core.__file__).startswith(folder) and folder not in str(_core.__file__):
        sys.exit(f"the core came from {_core.__file__}, not from {folder}")
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *tests]))
