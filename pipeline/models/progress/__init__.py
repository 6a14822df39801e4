"""The progress model: the number of steps left in a proof, predicted from a state and its next step.

It orders a search as LeanProgress does (arXiv:2502.17925).
"""
