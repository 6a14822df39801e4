"""Trainable models: the premise retriever, tactic models and the progress model.

The three share the modules beside this one; none of them imports another.
"""
