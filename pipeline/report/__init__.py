"""The report: HTML pages of what is in the view, which need no network, no script and no plotting library.

What they show are documents (`store.documents`); here is which, in what order and where. `page.render` makes the
pages, `writing.write` puts them and their pictures into a folder. `front` is the first screen, which the daemon also
sends as a digest.
"""

from __future__ import annotations

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The Content-Security-Policy of each page, in its head and in the headers of its server: its own style, and nothing
else is loaded, run or sent."""
FIRST = "index.html"
"""The name of the page that leads to the others."""
NO_SUCH_PAGE = 4
"""The exit status of `python -m pipeline.report` where the report has no page of that name."""
