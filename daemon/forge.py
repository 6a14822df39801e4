"""The way to the forge: the token as it is now, and the client of its API that carries it."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from daemon.github import GitHub
from daemon.github_answers import REFUSED_REMEDY
from daemon.settings import Settings

log = structlog.get_logger("daemon.forge")


class Forge:
    """Holds what the pollers and git need to be let in; taken up again with every reload.

    Args:
        renewed: called when a token that was refused has given way to a new one.
    """

    def __init__(self, *, renewed: Callable[[], None] = lambda: None) -> None:
        self.github: GitHub | None = None
        self._renewed = renewed
        self._unusable = ""
        self._token: str | None = None
        self._settings: Settings | None = None

    @property
    def problem(self) -> str:
        """Why the token cannot be used, for people; "" where it can, or there is none."""
        if self._unusable:
            return self._unusable
        if self.github is not None and self.github.token_refused:
            return f"the GitHub token is refused by {self.github.api_url}; {REFUSED_REMEDY}"
        return ""

    def connect(self, settings: Settings) -> GitHub | None:
        """Take the token up, and with it or an `api_url` a client; return one that is not used any more, to be closed.

        A client that would be the same stays, with what it knows of limits.
        """
        self._settings = settings
        token, before = self._read(), self.github
        api_url, timeout_s = settings.github.api_url, settings.poll.timeout_s
        same = before is not None and before.is_for(api_url=api_url, token=token, timeout_s=timeout_s)
        self._token = token
        if same and (token or api_url):
            return None
        self.github = (
            GitHub(api_url=api_url, token=token, timeout_s=timeout_s, renew=self._renew)
            if token or api_url
            else None
        )
        return before

    def token_for(self, url: str) -> str | None:
        """Return what git may show to this URL's host."""
        return self.github.token_for(url) if self.github else None

    def secrets(self) -> tuple[str, ...]:
        """What must appear in no log."""
        return (self._token,) if self._token else ()

    def _renew(self) -> str | None:
        """Read the token again, as the one in use is refused."""
        token = self._read()
        if token is not None and token != self._token:
            self._token = token
            log.info("token_renewed")
            self._renewed()
        return token

    def _read(self) -> str | None:
        """Return the token as it is now; None where there is none that can be used, and `problem` says why."""
        if self._settings is None:
            return None
        try:
            token = self._settings.github.read_token()
        except (OSError, ValueError) as error:
            unusable = f"the GitHub token cannot be used: {error}"
            if unusable != self._unusable:
                log.warning("token_unusable", reason=str(error))
            self._unusable = unusable
            return None
        self._unusable = ""
        return token
