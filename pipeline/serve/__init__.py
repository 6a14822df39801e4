"""The HTTP server for editors and other clients: LeanCopilot's two routes, and more.

`python -m pipeline.serve ORDER.json`, a process of its own that `everlean serve` becomes. `app` has the routes,
`schemas` what they take and answer, `models` the models by name, each in a place where another may follow, `engines`
what generates and embeds, `check`, `fill` and `retrieve` the work behind each route.
"""
