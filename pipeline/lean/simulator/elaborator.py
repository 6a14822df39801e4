"""The elaborator with every rule of the language: get it from here, not from `elaboration.py`."""

from __future__ import annotations

from pipeline.lean.simulator import match_rules, tactics, term_rules
from pipeline.lean.simulator.elaboration import Elaborator

__all__ = ["RULES", "Elaborator"]
RULES = (match_rules, tactics, term_rules)
