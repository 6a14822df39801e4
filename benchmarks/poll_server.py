"""The server of `benchmarks/poll.py`, a process: `python -m benchmarks.poll_server TOKEN REPOSITORY ...`.

Reads a word a line and answers with JSON: url, forget (the requests so far), statuses (the number of requests
by status since, and their CPU seconds).
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from tests.support.daemon.github import GitHubServer


def main() -> None:
    token, *repositories = sys.argv[1:]
    with GitHubServer(token=token) as server:
        for path in map(Path, repositories):
            server.add("/".join(path.parts[-2:]), path)
        before = time.process_time()
        for line in sys.stdin:
            answer: dict[str, object] = {}
            match line.strip():
                case "url":
                    answer["url"] = server.url
                case "forget":
                    server.requests.clear()
                    before = time.process_time()
                case "statuses":
                    answer["statuses"] = Counter(str(request.status) for request in server.requests)
                    answer["cpu_s"] = time.process_time() - before
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
