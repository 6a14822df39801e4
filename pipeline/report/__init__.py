"""The report: one HTML page of what is in the view, which needs no network, no script and no plotting library.

`gather` reads the view into frozen dataclasses, `render` makes the page of them, `write` puts page and pictures into
a folder. Standard library only, so that the command line can make it.
"""

from __future__ import annotations
