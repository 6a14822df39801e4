"""Stand-ins for Lean's programs (REPL, elan, lake), as programs; for tests and benchmarks only."""
