"""The HTTP server for editors and other clients: LeanCopilot's two routes, and more.

`python -m pipeline.serve ORDER.json`: `everlean serve` becomes this process. `app` has the routes, `schemas` their
requests and responses, `models` the registry of models, `engines` generation and embedding, `check`, `fill` and
`retrieve` the work of these routes.
"""
