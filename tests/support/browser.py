"""A browser without a window, driven over a pipe in the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The browser reads commands from descriptor 3 and answers on 4.
_LAUNCH = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]\n"
    "os.dup2(ends[0], 3), os.dup2(ends[1], 4)\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)
_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
_ANSWER_S = 30.0


@dataclass
class Shown:
    """What happened while a page was shown."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class Browser:
    """One Chromium and one tab in it, driven over a pipe in the DevTools protocol."""

    def __init__(self, program: str, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), program, *_QUIET,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._calls, self._pending, self._session = 0, b"", ""
        self.shown = Shown()
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and return its answer once it came."""
        self._calls += 1
        command: dict[str, Any] = {"id": self._calls, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._calls:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def show(self, url: str, *, width: int = 1280, dark: bool = False) -> Shown:
        """Load a page and wait until it is complete; return what was asked for and complained of meanwhile."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.shown = Shown()
        self.call("Page.navigate", url=url)
        while self.ask("document.readyState") != "complete":
            time.sleep(0.02)
        self.ask("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        return self.shown

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page; a promise's once it is kept."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def photograph(self) -> bytes:
        """Return what is seen, as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """End the browser and all that it started."""
        os.close(self._out)
        os.close(self._in)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._in], [], [], _ANSWER_S)
            read = os.read(self._in, 1 << 20) if ready else b""
            assert read, "the browser does not answer" if not ready else "the browser is gone"
            self._pending += read
        line, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        about = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.shown.requests.append(about["request"]["url"])
            case "Log.entryAdded":
                self.shown.complaints.append(about["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.shown.complaints.append(json.dumps(about))


def _starts(program: str) -> bool:
    """Some distributions have a program of this name that only says where to get the browser."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60)
    return said.returncode == 0 and "Chrom" in said.stdout
