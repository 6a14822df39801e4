"""Experiments: one YAML file each, run by `python -m experiments FILE`, with a table and a chart as the result.

Whatever is measured is an event of the experiment's own log; a table is made of that log alone, and what the log has is
not measured again. Not part of the installed program: it runs from a checkout, with the extra `train`.
"""
