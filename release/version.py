"""The version that a build gets: of the tag, by whoever builds a release (`make dist`), else of the next one.

A wheel that is made from an sdist has the sdist's version, whatever is said here.
"""

from __future__ import annotations

import os

__version__ = os.environ.get("EVERLEAN_VERSION") or "0.1.0"
