"""The HTTP server for editors and other clients: LeanCopilot's two routes, and more.

`python -m pipeline.serve ORDER.json`, a process of its own, started by `everlean serve` or kept running by the daemon.
Its core is in four modules: `wire` (what goes over the line), `registry` (the models by name), `swapping` (one model's
place, where another may follow) and `app`.
"""
