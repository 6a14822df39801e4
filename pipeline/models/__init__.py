"""Models: the premise retriever, tactic models, the progress model, and models behind an endpoint.

The three models that are trained here share the modules beside this one; none of them imports another.
"""
