"""When is it a proof? Each module here is one check; `verdict.py` runs them in order, cheapest first."""
