"""No secret in what people read."""

from __future__ import annotations

import base64
import io
import json
import logging

import pytest
import structlog

from daemon.logs import configure
from daemon.polling.git_process import environment
from daemon.redact import redact

SECRET = "s3cr3t-of-no-known-shape"


@pytest.mark.parametrize(
    "text",
    [
        "fatal: unable to access 'https://ada:hunter2@github.com/o/n/': 403",
        "ssh://git:hunter2@host/o/n",
        "Authorization: Bearer hunter2",
        "http.https://github.com/.extraHeader=AUTHORIZATION: basic hunter2",
        "{'authorization': 'token hunter2'}",
    ],
)
def test_credentials_in_known_places_are_hidden(text: str) -> None:
    assert "hunter2" not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize("token", ["ghp_" + "a1" * 18, "github_pat_" + "Zz9_" * 10, "glpat-" + "x" * 20])
def test_tokens_are_known_by_their_shape(token: str) -> None:
    assert redact(f"the token {token} is bad") == "the token *** is bad"


def test_ordinary_text_stays_as_it_is() -> None:
    text = "https://github.com/owner/name: 2 commits by ada@example.org at sha 1234"
    assert redact(text) == text


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        "pass%2Fword%3D1",
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"x-access-token:{SECRET}".encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_known_secret_is_hidden_in_each_form_in_which_it_travels(form: str) -> None:
    secrets = (SECRET, "pass/word=1")
    assert form not in redact(f"before {form} after", secrets=secrets)
    assert redact(f"before {form}", secrets=()) == f"before {form}"


@pytest.fixture
def lines() -> list[str]:
    return []


def test_every_value_of_a_log_line_is_filtered_however_deep(lines: list[str]) -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        configure(level="info", log_format="json", stream=stream, secrets=lambda: (SECRET,))
        log = structlog.get_logger("t")
        log.info("happened", plain=SECRET, deep={"list": [f"x{SECRET}y"]}, obj=ValueError(SECRET))
        logging.getLogger("library").warning("with %s inside", SECRET)
        try:
            raise ValueError(f"https://u:{SECRET}@host/")
        except ValueError:
            log.exception("failed")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
    text = stream.getvalue()
    assert SECRET not in text
    events = [json.loads(line) for line in text.splitlines()]
    assert [event["event"] for event in events] == ["happened", "with *** inside", "failed"]
    assert all(event["ts"] and event["level"] for event in events)


def test_git_gets_the_token_for_its_host_only_and_in_no_argument() -> None:
    given = environment(url="https://github.com/o/n", token="tok")
    keys = [value for name, value in given.items() if name.startswith("GIT_CONFIG_KEY_")]
    assert "http.https://github.com/.extraHeader" in keys
    assert "tok" not in json.dumps(given)  # it is encoded, as the header wants it
    assert not any("extraHeader" in value for value in environment(url="/local/path", token="tok").values())
    assert not any("extraHeader" in value for value in environment(url="ssh://h/o/n", token="tok").values())


def test_git_gets_no_other_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSORRY_GITHUB_TOKEN", SECRET)
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    assert SECRET not in environment().values()
    assert "GIT_DIR" not in environment()
