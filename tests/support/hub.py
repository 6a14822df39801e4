"""A stand-in for the model hub: takes what huggingface_hub uploads, over HTTP, and keeps it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_of_a_test"


class Hub(ThreadingHTTPServer):
    """`files` has each repository's files, `private` whether it was made so; `asked` are the requests' lines."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.stored: dict[str, bytes] = {}
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    # A connection each: one that stays open would outlive the server.
    protocol_version = "HTTP/1.0"

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body, path = self._read(), self.path.partition("?")[0]
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer({"error": "Invalid username or password."}, 401)
            return
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            known = name in self.server.files
            self.server.files.setdefault(name, {})
            private = asked.get("private") or asked.get("visibility") == "private"
            self.server.private.setdefault(name, bool(private))
            self._answer({"url": f"{self.server.url}/{name}", "error": "it exists"}, 409 if known else 200)
        elif path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif path.endswith("/preupload/main"):
            self._answer({"files": [
                {
                    "path": file["path"], "shouldIgnore": False,
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                }
                for file in json.loads(body)["files"]
            ]})  # fmt: skip
        elif path.endswith("/info/lfs/objects/batch"):
            self._answer({"transfer": "basic", "objects": [
                {
                    "oid": one["oid"], "size": one["size"],
                    "actions": {"upload": {"href": f"{self.server.url}/stored/{one['oid']}"}},
                }
                for one in json.loads(body)["objects"]
            ]})  # fmt: skip
        elif path.endswith("/commit/main"):
            name = path.removeprefix("/api/models/").removesuffix("/commit/main")
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    self.server.files[name][value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    self.server.files[name][value["path"]] = self.server.stored[value["oid"]]
            commit = f"{self.server.url}/{name}/commit/{'a' * 40}"
            self._answer({"success": True, "commitOid": "a" * 40, "commitUrl": commit})
        else:
            self._answer({"error": f"no such thing: {path}"}, 404)

    def do_PUT(self) -> None:
        content = self._read()
        assert self.path == f"/stored/{hashlib.sha256(content).hexdigest()}"
        self.server.stored[self.path.rpartition("/")[2]] = content
        self._answer({})

    def do_GET(self) -> None:
        self._read()
        self._answer({"error": f"no such thing: {self.path}"}, 404)

    def _read(self) -> bytes:
        self.server.asked.append(f"{self.command} {self.path}")
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def hub() -> Iterator[Hub]:
    """Run a hub in a thread."""
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
