"""Put results to use: model promotion, patches, pull requests, notifications."""

from __future__ import annotations
