"""Models behind an HTTP endpoint: asked, paid for within a cap, and never trusted. Nothing here needs torch."""
