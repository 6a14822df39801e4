"""Experiments: one YAML file each, run by `python -m experiments FILE`, with a table and a chart.

Every measurement is an event of the experiment's own log; a table is made of this log alone, and nothing in
it is measured again. Not part of the installed program: it runs from a checkout, with the extra `train`.
"""
