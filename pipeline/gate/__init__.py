"""The verification gate. Each module here is one check; `verdict.py` runs them in order, cheapest first."""
