"""No secret in what people read."""

from __future__ import annotations

import base64
import io
import json
import logging
import time
from urllib.parse import quote

import pytest
import structlog

from daemon.place.logs import configure
from daemon.polling.git_process import environment
from pipeline.redact import redact

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


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ODD = "pass/word+of=no_known:shape"
FORMS = {
    "as it is": ODD,
    "in upper case": ODD.upper(),
    "reversed": ODD[::-1],
    "as a URL has it": quote(ODD, safe=""),
    "quoted twice": quote(quote(ODD, safe=""), safe=""),
    "all percent": "".join(f"%{byte:02X}" for byte in ODD.encode()),
    "as JSON may have it": json.dumps(ODD).replace("/", "\\/"),
    "as JSON's numbers": "".join(f"\\u{ord(letter):04x}" for letter in ODD),
    "in hexadecimal": ODD.encode().hex(),
    "in hexadecimal with colons": ":".join(f"{byte:02X}" for byte in ODD.encode()),
    "in base64": in_base64(ODD),
    "in a URL's base64": base64.urlsafe_b64encode(ODD.encode()).decode(),
    "as git sends it": in_base64(f"x-access-token:{ODD}"),
    "in lines of base64": base64.encodebytes(f"Authorization: Bearer {ODD} and a tail".encode()).decode(),
    "in base64 in a URL": quote(in_base64(f"Bearer: {ODD}"), safe=""),
}


def pieces(secret: str) -> set[str]:
    """What would give it away: eight letters in a row of it, of its reverse, or of what its forms are made of."""
    return {text[at : at + 8] for text in (secret, secret[::-1]) for at in range(len(text) - 7)}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_a_known_secret_is_hidden_in_each_form_that_holds_it(form: str) -> None:
    said = redact(f"before {form} after", secrets=(SECRET, ODD))
    assert said.startswith("before ")
    assert "***" in said
    assert len(said) < 80, "nothing of it is left but what stood before or behind it"
    assert redact(f"before {form}", secrets=()) == f"before {form}"


@pytest.mark.parametrize("before", range(6))
def test_base64_is_hidden_wherever_the_secret_begins_in_it(before: int) -> None:
    said = redact(in_base64("x" * before + ODD + "tail"), secrets=(ODD,))
    left = base64.b64decode((said.split("***")[0] + "===")[: len(said.split("***")[0]) // 4 * 4])
    assert "***" in said
    assert set(left) <= {ord("x")}


def test_a_short_secret_is_looked_for_as_it_is_and_ordinary_text_stays() -> None:
    assert redact("the tok is a token: 746f6b", secrets=("tok",)) == "the *** is a ***en: 746f6b"


@pytest.mark.parametrize("text", ["c", "pas", "%", "%25", "\\", "a:", "70 ", "cGFz\n"])
def test_a_hostile_text_takes_time_by_its_length_and_no_more(text: str) -> None:
    def seconds(length: int) -> float:
        started = time.process_time()
        redact(text * (length // len(text)), secrets=(ODD,))
        return time.process_time() - started

    few, many = (min(seconds(length) for _ in range(2)) for length in (2**14, 2**17))
    assert many < 40 * few + 0.05, "eight times the length; what grows by the square takes 64 times as long"


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.mark.usefixtures("loggers_as_they_were")
def test_every_value_of_a_log_line_is_filtered_however_deep(lines: list[str]) -> None:
    stream = io.StringIO()
    configure(level="info", log_format="json", stream=stream, secrets=lambda: (SECRET,))
    log = structlog.get_logger("t")
    log.info("happened", plain=SECRET, deep={"list": [f"x{SECRET}y"]}, obj=ValueError(SECRET))
    logging.getLogger("library").warning("with %s inside", SECRET)
    try:
        raise ValueError(f"https://u:{SECRET}@host/")
    except ValueError:
        log.exception("failed")
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
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", SECRET)
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    assert SECRET not in environment().values()
    assert "GIT_DIR" not in environment()
