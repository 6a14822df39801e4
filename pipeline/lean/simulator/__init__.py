"""A stand-in for `pantograph-repl` where there is no Lean: the same protocol over a small sound logic.

It is not Lean, says so wherever it can, and nothing that it accepts may be offered to anybody as a proof. The
logic: propositional connectives, `∀` and `∃`, closed arithmetic on natural numbers, definitions and theorems by
name. Everything that it accepts has been checked by `kernel.py`; everything else is an ordinary error. It knows of the
protocol what the client sends, and of tactics what the tests and examples use.
"""

from __future__ import annotations

VERSION = "everlean-simulator 0.1 (not Lean)"
