"""The report: HTML pages of the view, without a network or a plotting library.

Their contents are documents (`store.documents`); this package chooses, orders and places them. `page.render` makes the
pages, `writing.write` puts them and their pictures into a folder. `front` is the first screen, which the daemon also
sends as a digest.
"""

from __future__ import annotations

import base64
import hashlib

FILTER = """
const box = document.getElementById("filter"), counted = document.getElementById("matches")
const all = [...document.querySelectorAll(".sorry")].map(node => [node, node.textContent.toLowerCase()])
box.parentElement.hidden = false
box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean)
  for (const [node, text] of all) node.hidden = !words.every(word => text.includes(word))
  for (const file of document.querySelectorAll(".file")) file.hidden = !file.querySelector(".sorry:not([hidden])")
  counted.value = words.length ? `${all.filter(([node]) => !node.hidden).length} of ${all.length}` : ""
})
"""
"""The one script, for the box that filters the sorries of a page. Without it the box is hidden."""
_HASH = base64.b64encode(hashlib.sha256(FILTER.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; script-src 'sha256-{_HASH}'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'"
)
"""The Content-Security-Policy of each page, in its head and in the headers of its server: its own style and this
script; it loads, runs and sends nothing else.
"""
FIRST = "index.html"
"""The name of the page with links to the others."""
NO_SUCH_PAGE = 4
"""The exit status of `python -m pipeline.report` for an unknown page."""
