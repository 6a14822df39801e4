"""A real git repository on disk that plays the remote in tests: commits, branches, force-pushes, deletions."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
    # No sample hooks, and no process that looks after each commit whether there is something to collect.
    "GIT_TEMPLATE_DIR": "",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "maintenance.auto",
    "GIT_CONFIG_VALUE_0": "false",
}


def git(folder: Path, *arguments: str, data: bytes = b"", author: str = "", date: str = "") -> str:
    """Run git in a folder, as Ada and without a configuration; return what it printed.

    `data` is its input; `author` and `date` are those of the commits it makes.
    """
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env={
            "PATH": os.environ["PATH"],
            **_ENVIRONMENT,
            **({"GIT_AUTHOR_NAME": author} if author else {}),
            **({"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}),
        },
        input=data,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode().strip()


class Remote:
    """A repository with a work tree at `path`."""

    def __init__(self, path: Path, *, branch: str = "main") -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "--quiet", f"--initial-branch={branch}")

    @classmethod
    def at(cls, path: Path) -> Remote:
        """Start from an existing one, as a copy of another."""
        remote = cls.__new__(cls)
        remote.path = path
        return remote

    def git(self, *arguments: str, author: str = "", date: str = "") -> str:
        """Run git in the repository; see `git`."""
        return git(self.path, *arguments, author=author, date=date)

    def commit(
        self, subject: str, files: Mapping[str, str] | None = None, *, author: str = "", date: str = ""
    ) -> str:
        """Write the files (else one that is named after the subject), commit everything, return the sha."""
        for name, text in (files or {f"{subject.replace(' ', '_')}.txt": subject}).items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject, author=author, date=date)
        return self.git("rev-parse", "HEAD")

    def reset(self, target: str) -> None:
        """Force the current branch to `target`."""
        self.git("reset", "--quiet", "--hard", target)

    def serve_partially(self) -> None:
        """Allow partial clones of it, as GitHub does."""
        self.git("config", "uploadpack.allowFilter", "true")
        self.git("config", "uploadpack.allowAnySHA1InWant", "true")

    def import_history(self, commits: int, *, bytes_each: int) -> None:
        """Give `main` a linear history: each commit changes one of a few files to as many random-looking bytes."""

        def file(number: int) -> tuple[str, str]:
            block = hashlib.sha256(str(number).encode()).hexdigest()
            return f"F{number % 7}.lean", (block * (bytes_each // len(block) + 1))[:bytes_each]

        self.import_files(commits, file)

    def import_files(self, commits: int, file: Callable[[int], tuple[str, str]]) -> None:
        """Add commits to `main`, each of which writes one file: the name and text that `file` returns of its number."""
        begun = subprocess.run(
            ["git", "-C", str(self.path), "rev-parse", "--verify", "--quiet", "main"],
            capture_output=True,
            check=False,
        )
        importing = subprocess.Popen(
            ["git", "-C", str(self.path), "fast-import", "--quiet"],
            env={"PATH": os.environ["PATH"], **_ENVIRONMENT},
            stdin=subprocess.PIPE,
        )
        assert importing.stdin is not None
        with importing.stdin as to:
            for number in range(commits):
                name, content = file(number)
                subject = f"c{number}"
                after = "from refs/heads/main^0\n" if number == 0 and begun.returncode == 0 else ""
                to.write(
                    f"commit refs/heads/main\ncommitter Ada <ada@example.org> {1_000_000_000 + number} +0000\n"
                    f"data {len(subject)}\n{subject}\n{after}M 100644 inline {name}\n"
                    f"data {len(content)}\n{content}\n".encode()
                )
        if importing.wait() != 0:
            raise RuntimeError(f"git fast-import ended with {importing.returncode}")
