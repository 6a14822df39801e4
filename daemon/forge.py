"""The way to the forge: the token as it is now, and the client of its API that carries it."""

from __future__ import annotations

import structlog

from daemon.github import GitHub
from daemon.settings import Settings

log = structlog.get_logger("daemon.forge")


class Forge:
    """Holds what the pollers and git need to be let in; taken up again with every reload."""

    def __init__(self) -> None:
        self.github: GitHub | None = None
        self.problem = ""
        """Why the token cannot be used, for people; "" where it can, or there is none."""
        self._token: str | None = None

    def connect(self, settings: Settings) -> GitHub | None:
        """Take the token up, and with it or an `api_url` a client; return the one before, for the caller to close."""
        try:
            self._token = settings.github.read_token()
            self.problem = ""
        except (OSError, ValueError) as error:
            self._token = None
            self.problem = f"the GitHub token cannot be used: {error}"
            log.warning("token_unusable", reason=str(error))
        before = self.github
        wanted = bool(self._token or settings.github.api_url)
        self.github = (
            GitHub(api_url=settings.github.api_url, token=self._token, timeout_s=settings.poll.timeout_s)
            if wanted
            else None
        )
        return before

    def token_for(self, url: str) -> str | None:
        """Return what git may show to this URL's host."""
        return self.github.token_for(url) if self.github else None

    def secrets(self) -> tuple[str, ...]:
        """What must appear in no log."""
        return (self._token,) if self._token else ()
