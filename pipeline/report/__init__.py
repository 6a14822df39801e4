"""The report: one HTML page of what is in the view, which needs no network, no script and no plotting library.

`gather` reads the view into frozen dataclasses, `page.render` makes the page of them, `writing.write` puts the page and
its pictures into a folder.
"""

from __future__ import annotations

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The Content-Security-Policy of the page, in its head and in the headers of its server: its own style, and nothing
else is loaded, run or sent."""
