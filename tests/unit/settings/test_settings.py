"""config.toml -> Settings: defaults, limits, and every mistake at once with its line and remedy."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path

import pytest

from daemon.settings import ConfigError, Settings, load, parse
from daemon.settings.models import Prove
from daemon.settings.schema import ConfigFile, RepoEntry
from store.events.models import ModelKind
from store.promotion import RULES

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "config.toml"
PROGRAM = "[[prove.programs]]\nname = 'agent'\nrun = ['./agent']\n"


def errors(text: str, tmp_path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode(), path=tmp_path / "config.toml")
    return list(caught.value.errors)


def settings(text: str, tmp_path: Path) -> Settings:
    return parse(text.encode(), path=tmp_path / "config.toml")


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    result = settings("", tmp_path)
    assert (result.poll.every_s, result.jobs.memory_bytes, result.repos) == (300.0, 4 * 2**30, ())


def test_the_shipped_file_is_valid_and_states_exactly_the_defaults(tmp_path: Path) -> None:
    shipped, empty = load(SHIPPED), settings("", tmp_path)
    for section in ("daemon", "poll", "github", "lean", "jobs", "prove", "repos"):
        assert getattr(shipped, section) == getattr(empty, section), section


def test_the_shipped_file_names_every_setting() -> None:
    raw = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
    for section, field in ConfigFile.model_fields.items():
        if section == "repos":
            continue
        assert field.default_factory is not None
        model = type(field.get_default(call_default_factory=True))
        names = {setting.alias or name for name, setting in model.model_fields.items()}
        # Like the watchlist, tables with two brackets stand there as an example.
        tables = {"serve": {"models"}, "prove": {"programs"}}.get(section, set())
        assert set(raw[section]) == names - tables, section


def shipped_examples(heading: str) -> str:
    """Return a table of the shipped file with its commented settings in force."""
    lines = SHIPPED.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(heading))
    length = next(number for number, line in enumerate(lines[start:]) if not line)
    return "\n".join(line.removeprefix("# ") for line in lines[start : start + length])


@pytest.mark.parametrize("table", ["generator", "whole", "external"])
def test_the_shipped_examples_of_the_provers_name_every_setting_with_its_default(
    table: str, tmp_path: Path
) -> None:
    text = shipped_examples(f"[prove.{table}]")
    default = getattr(Prove(), table)
    shown = getattr(settings(text, tmp_path).prove, table)
    assert set(tomllib.loads(text)["prove"][table]) == {
        field.alias or name for name, field in type(default).model_fields.items()
    }
    examples = {name for name in type(default).model_fields if name.startswith("usd_")}
    assert shown.model_dump(exclude=examples) == default.model_dump(exclude=examples)


@pytest.mark.parametrize("model", ["tactics", "progress"])
def test_the_shipped_examples_of_training_are_valid(model: ModelKind, tmp_path: Path) -> None:
    text = shipped_examples(f"[train.{model}]")
    learning = settings(f"[train]\n{text}", tmp_path).train.of(model)
    assert learning.enabled
    assert learning.tolerance == RULES[model].tolerance
    assert not settings("", tmp_path).train.of(model).enabled


def test_the_shipped_examples_of_repositories_are_valid_and_show_every_setting(tmp_path: Path) -> None:
    lines = SHIPPED.read_text(encoding="utf-8").splitlines()
    start = lines.index("# [[repos]]")
    text = "\n".join(line.removeprefix("# ").removeprefix("#") for line in lines[start:])
    result = settings(text, tmp_path)
    assert [repo.key for repo in result.repos] == [
        "github.com/owner/name",
        "github.com/leanprover-community/mathlib4",
    ]
    shown = tomllib.loads(text)["repos"][0]
    assert set(shown) == {field.alias or name for name, field in RepoEntry.model_fields.items()}
    assert result.repos[0].include == ("**/*.lean",)
    assert result.repos[0].every_s == result.poll.every_s


def test_five_mistakes_give_five_lines_with_file_line_and_remedy(tmp_path: Path) -> None:
    text = """\
[poll]
every = "500ms"
evrey = "5m"
[jobs]
max_running = "two"
[[repos]]
url = "ftp://example.org/a/b"
exclude = ["/etc"]
"""
    assert errors(text, tmp_path) == [
        'config.toml:2: poll.every: must be at least 1s (got "500ms"); write a duration such as "1s"',
        'config.toml:3: poll.evrey: is no known setting; did you mean "every"?',
        'config.toml:5: jobs.max_running: must be a whole number (got "two"); write for instance max_running = 2',
        (
            'config.toml:7: repos[0].url: has the unknown scheme "ftp"; write "https://github.com/owner/name",'
            ' "ssh://git@host/owner/name", "file:///path" or "./path"'
        ),
        (
            'config.toml:8: repos[0].exclude[0]: is an absolute path (got "/etc"); write a path glob relative to the'
            ' repository, such as "Mathlib/**/*.lean"'
        ),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("poll = 3", "config.toml:1: poll: must be a table (got 3); write [poll]"),
        ("[repos]\nurl = './a'", "config.toml:1: repos: must be an array of tables; write [[repos]]"),
        ("repos = [3]", "config.toml:1: repos[0]: must be a table (got 3); write [[repos]]"),
        ("[[repos]]\n", "config.toml:1: repos[0].url: is required; write for instance url ="),
        ("[lean]\nbackend = 'autom'", 'config.toml:2: lean.backend: must be one of auto, '),
        ("[lean]\nbackend = 'autom'", 'did you mean "auto"?'),
        ("[pol]\n", 'config.toml:1: pol: is no known setting; did you mean "poll"?'),
        ("[jobs]\nmax_running = 0", "config.toml:2: jobs.max_running: must be at least 1 (got 0)"),
        ("[jobs]\nmax_running = true", "config.toml:2: jobs.max_running: must be a whole number (got true)"),
        ("[prove]\nenabled = 1", "config.toml:2: prove.enabled: must be true or false (got 1)"),
        ("[prove]\nrungs = []", "config.toml:2: prove.rungs: names no rung"),
        ("[prove]\nrungs = [0, 6]", "config.toml:2: prove.rungs: has no rung 6, they are 0 to 5"),
        ("[prove]\nrungs = [0, 5]", "has rung 5 (program), and there are no [[prove.programs]]; add one"),
        (PROGRAM.replace("agent'\nrun", "a b'\nrun"), "programs[0].name: is no name for records; letters, digits"),
        (PROGRAM.replace("['./agent']", "[]"), 'programs[0].run: names no program; write for instance run = '),
        (f"{PROGRAM}network = ['https://x.org/']", "network[0]: is no host name"),
        (f"{PROGRAM}network = ['api.example.org']", "may cost money and has no usd_per_run; write usd_per_run = 1"),
        (f"{PROGRAM}usd_per_run = 2", "costs money and has no usd_per_day; write usd_per_day = 5"),
        (f"{PROGRAM}credential = 'agent-key'", "has one of credential and variable, and a key needs both"),
        (f"{PROGRAM}variable = 'LD_PRELOAD'", "is LD_PRELOAD, which the sandbox sets or needs"),
        (f"{PROGRAM}{PROGRAM}", 'prove.programs: has the name "agent" twice'),
        (f"[prove]\nrungs = [5]\nhours_per_day = 0.01\n{PROGRAM}", "raise hours_per_day, or lower seconds of agent"),
        ("[prove]\nrungs = [2, 0, 2]", "config.toml:2: prove.rungs: names a rung twice"),
        ("[prove]\nrungs = [0, 1]", "which needs model under [prove.generator]; write model ="),
        ("[prove]\nrungs = [3]", "has rung 3 (whole), which needs model under [prove.whole]"),
        ("[prove]\nrungs = [2]\nhours_per_day = 0.01", "has rung 2 (generator), which may search one sorry for 60 s"),
        ("[prove]\nhours_per_day = 0", "config.toml:2: prove.hours_per_day: must be more than 0"),
        ("[prove.generator]\ndevice = 'gpu'", "config.toml:2: prove.generator.device: must be one of auto, cuda, cpu"),
        ("[prove.generator]\ncandidate = 3", 'no known setting; did you mean "candidates"?'),
        ("[prove.external]\nbase_url = 'http://api.example.org'", "would send the key unencrypted"),
        ("[prove.external]\nkey = 'sk-x'", "config.toml:2: prove.external.key: the configuration must not contain"),
        ("[train.tactics]\nepocs = 3", "config.toml:1: train.tactics: epocs is no field of"),
        ("[train.tactics.grpo]\ngoal = 3", "train.tactics: grpo.goal: extra inputs are not permitted; its fields"),
        ("[train.tactics.grpo]\nnum_generations = 1", "grpo.num_generations: input should be greater than"),
        ("[train.tactics.grpo]\ntrl = { a = [] }", "train.tactics: grpo.trl.a"),
        ("[train.tactics]\ndevice = 'cpu'", "train.tactics: takes no device; write device"),
        ("[train.progress]\ntolerance = -1", "train.progress: tolerance must be a number of steps from 0 to 1000"),
        ("[train.progress]\nenabled = 1", "train.progress: enabled must be true or false"),
        ("[jobs]\nmemory = 4", "config.toml:2: jobs.memory: must be a string with a unit (got 4)"),
        ("[poll]\ntimeout = 5", "config.toml:2: poll.timeout: must be a string with a unit (got 5)"),
        ("[github]\napi_url = 'ftp://x'", "config.toml:2: github.api_url: must be an https URL"),
        ("[github]\napi_url = 'http://ghe.example.org'", "would send the key unencrypted"),
        ('[notify.webhook]\nurl = "http://example.org/hook"', "would be sent unencrypted"),
        ('[notify.webhook]\nurl = "ftp://example.org/hook"', "must be an https URL"),
        ('[notify.webhook]\nurl = "https://[example"', "is no valid URL"),
        ('[notify.webhook]\nsecret = "hushhush"', "everlean-notify-secret"),
        ('[notify.webhook]\nkinds = ["proof_found"]', "one of sorry_opened, sorry_filled"),
        ("[notify.webhook]\nkinds = []", "should have at least 1 item"),
        ('[notify.command]\nrun = [""]', "names no program"),
        ('[notify.command]\nrun = "tell --here"', "list in square brackets"),
        ("[notify]\ndigest = 60", "must be a string with a unit"),
        ('[metrics]\nlisten = "0.0.0.0:9464"', "lets other machines read"),
        ('[metrics]\nlisten = "[::]:9464"', "lets other machines read"),
        ('[metrics]\nlisten = "192.0.2.1:9464"', "public = true"),
        ('[metrics]\nlisten = "localhost:9464"', "IP address, not a name"),
        ('[metrics]\nlisten = "127.0.0.1"', "no address with a port"),
        ('[metrics]\nlisten = "127.0.0.1:0"', "no address with a port"),
        ("[report]\nserve = true", "config.toml:2: report.serve: has no address to be served at; write listen"),
        ("[report]\nserve = 1", "config.toml:2: report.serve: must be true or false"),
        ('[schedule]\npreempt = ["scan"]', "schedule.preempt[0]: must be one of prove, quiet, pause"),
        ('[schedule.quiet]\ntrain = ["8-18"]', 'schedule.quiet.train[0]: is no part of a day (got "8-18"); write'),
        ('[jobs.limits]\nbuild = { memory = "8G" }', "jobs.limits: build has its limits in a table of its own"),
        ('[jobs.limits]\nprove = { memory = "1K" }', 'jobs.limits.prove.memory: must be at least 256M (got "1K")'),
        ("[jobs.limits]\nprove = { cpus = 2 }", "prove.cpus: is no known setting; the names here are memory, timeout"),
        ("[jobs.limits]\nprov = {}", "jobs.limits.prov: must be one of scan, check, build, "),
        ("[jobs.limits]\nprove = 3", "must be a table (got 3); write [jobs.limits.prove] and"),
        ("[poll\nevery = 1", "config.toml:1: syntax:"),
        ("[poll]\nevery = 5m", "config.toml:2: syntax:"),
        ("a = '''", "config.toml:1: syntax:"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(text: str, expected: str, tmp_path: Path) -> None:
    result = errors(text, tmp_path)
    assert len(result) == 1
    assert expected in result[0]
    assert ";" in result[0] or "did you mean" in result[0]
    assert "hushhush" not in result[0]


def test_a_file_that_is_no_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.toml:2: syntax: is not UTF-8"):
        parse(b"# fine\n# \xff\n", path=tmp_path / "config.toml")


def test_an_absent_file_is_a_config_error_and_no_crash(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "config.toml")


@pytest.mark.parametrize(
    "url",
    [
        "https://user:s3cret@github.com/a/b",
        "https://s3cret@github.com/a/b",
        "ssh://git:s3cret@host/a/b",
        "s3cret:s3cret@github.com:a/b",
        "https://user:s3cret@github.com:port/a/b",
        "htps://user:s3cret@github.com/a/b",
        "https://github.com/a/b?token=s3cret",
        "http://s3cret@github.com/a/b",
    ],
)
def test_no_credential_in_a_url_is_accepted_or_printed(url: str, tmp_path: Path) -> None:
    result = errors(f'[[repos]]\nurl = "{url}"\n[[repos]]\nurl = "{url}"\n', tmp_path)
    assert len(result) == 2
    assert "s3cret" not in "\n".join(result)


def test_every_thing_that_rung_4_needs_is_named_at_once(tmp_path: Path) -> None:
    result = errors("[prove]\nrungs = [0, 4]\n[prove.external]\nusd_per_day = 5\n", tmp_path)
    needs = {line.split("which needs ")[1].split()[0] for line in result}
    assert needs == {"base_url", "model", "usd_per_million_prompt", "usd_per_million_completion"}
    local = 'base_url = "http://localhost:8000/v1"\nmodel = "m"\n'
    free = "usd_per_million_prompt = 0\nusd_per_million_completion = 0\n"
    assert settings(f"[prove]\nrungs = [4]\n[prove.external]\n{local}{free}", tmp_path).prove.rungs == (4,)


def test_no_key_of_an_endpoint_is_accepted_or_printed(tmp_path: Path) -> None:
    text = """\
[prove.external]
base_url = "https://user:s3cret@api.example.org/v1?key=s3cret"
credential = "s3cret/s3cret"
api_key = "s3cret"
"""
    result = errors(text, tmp_path)
    assert len(result) == 3
    assert "s3cret" not in "\n".join(result)


def test_a_token_in_the_file_itself_is_refused_and_not_printed(tmp_path: Path) -> None:
    result = errors('[github]\ntoken = "ghp_s3cret"\n', tmp_path)
    assert result == [
        (
            "config.toml:2: github.token: the configuration must not contain a secret; put it in a file of mode 600 and"
            ' name that file: [github] token_file = "github-token"'
        )
    ]


def test_the_same_repository_twice_is_one_mistake_whatever_its_spelling(tmp_path: Path) -> None:
    text = '[[repos]]\nurl = "git@GitHub.com:a/b.git"\n[[repos]]\nurl = "https://github.com/A/b"\n'
    assert errors(text, tmp_path) == [
        (
            'config.toml:4: repos[1].url: is the same repository as repos[0] on line 2 ("github.com/A/b"); remove one'
            " of the two"
        )
    ]


def test_a_duplicate_is_reported_beside_other_mistakes(tmp_path: Path) -> None:
    text = '[poll]\nevery = "x"\n[[repos]]\nurl = "./a"\n[[repos]]\nurl = "./a"\n'
    assert [line.split(": ")[1] for line in errors(text, tmp_path)] == ["poll.every", "repos[1].url"]


def test_a_token_file_is_read_only_when_it_is_private(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("ghp_s3cret\n")
    token.chmod(0o644)
    result = errors('[github]\ntoken_file = "token"\n', tmp_path)
    assert len(result) == 1
    assert "can be read by every user" in result[0]
    assert f"chmod 600 {token}" in result[0]
    token.chmod(0o600)
    good = settings('[github]\ntoken_file = "token"\n', tmp_path)
    assert good.github.read_token() == "ghp_s3cret"


def test_a_token_file_that_is_missing_or_holds_no_token_is_refused(tmp_path: Path) -> None:
    assert "No such file" in errors('[github]\ntoken_file = "token"\n', tmp_path)[0]
    (tmp_path / "token").touch(mode=0o600)
    assert "holds no key" in errors('[github]\ntoken_file = "token"\n', tmp_path)[0]


def test_the_systemd_credential_goes_before_the_file_and_the_environment_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.setenv("GITHUB_ACCESS_TOKEN", "leandojo-s")
    assert settings("", tmp_path).github.read_token() == "leandojo-s"
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", "from-environment")
    assert settings("", tmp_path).github.read_token() == "from-environment"
    (tmp_path / "token").write_text("from-file")
    (tmp_path / "token").chmod(0o600)
    result = settings('[github]\ntoken_file = "token"\n', tmp_path)
    assert result.github.read_token() == "from-file"
    (tmp_path / "github-token").write_text("from-credential")
    (tmp_path / "github-token").chmod(0o400)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert result.github.read_token() == "from-credential"


def test_public_is_plain_json_and_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", "s3cret")
    (tmp_path / "token").write_text("s3cret")
    (tmp_path / "token").chmod(0o600)
    result = settings('[github]\ntoken_file = "token"\n[[repos]]\nurl = "./a"\n', tmp_path)
    text = json.dumps(result.public())
    assert "s3cret" not in text
    assert json.loads(text)["repos"][0]["url"] == str(tmp_path / "a")


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    result = settings(
        '[daemon]\nstate_dir = "data"\n[lean]\nrepl = "./bin/repl"\n[[repos]]\nurl = "../x"\n', tmp_path
    )
    assert result.paths.state == tmp_path / "data"
    assert result.lean.repl == str(tmp_path / "bin" / "repl")
    assert result.repos[0].url == str(tmp_path.parent.resolve() / "x")


def test_a_repository_has_its_own_interval_or_the_common_one(tmp_path: Path) -> None:
    text = '[poll]\nevery = "2m"\n[[repos]]\nurl = "./a"\nevery = "1h"\n[[repos]]\nurl = "./b"\nevery = ""\n'
    assert [repo.every_s for repo in settings(text, tmp_path).repos] == [3600.0, 120.0]


def test_settings_are_frozen(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings("", tmp_path).poll.every_s = 1.0  # type: ignore[misc]  # that it fails is the point


def test_the_digest_is_that_of_the_file_also_when_it_is_wrong(tmp_path: Path) -> None:
    assert settings("# x\n", tmp_path).digest == hashlib.sha256(b"# x\n").hexdigest()
    with pytest.raises(ConfigError) as caught:
        parse(b"x = 1\n", path=tmp_path / "config.toml")
    assert caught.value.digest == hashlib.sha256(b"x = 1\n").hexdigest()


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    data = '\ufeff[poll]\r\nevery = "2m"\r\n'.encode()
    assert parse(data, path=tmp_path / "config.toml").poll.every_s == 120.0


# --- what is told, and to whom


def test_nothing_is_told_and_nothing_listens_unless_it_is_asked_for(tmp_path: Path) -> None:
    result = settings("", tmp_path)
    assert (result.notify.webhook.url, result.notify.command.run, result.metrics.listen) == ("", (), "")
    assert not result.report.serve
    served = settings('[metrics]\nlisten = "127.0.0.1:9464"\n[report]\nserve = true\n', tmp_path)
    assert served.report.serve


def test_a_program_s_path_is_relative_to_the_file_and_its_name_is_left_to_path(tmp_path: Path) -> None:
    result = settings('[notify.command]\nrun = ["./tell", "./as-it-is"]', tmp_path)
    assert result.notify.command.run == (str(tmp_path / "tell"), "./as-it-is")
    assert settings('[notify.command]\nrun = ["tell"]', tmp_path).notify.command.run == ("tell",)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack.com/services/T0/B0/hushhush",
        "https://discord.com/api/webhooks/1/hushhush",
        "https://ada:hushhush@example.org/hook",
        "https://example.org/hook?token=hushhush",
    ],
)
def test_a_url_that_is_itself_a_secret_is_refused_and_not_printed(url: str, tmp_path: Path) -> None:
    (line,) = errors(f'[notify.webhook]\nurl = "{url}"', tmp_path)
    assert line.startswith("config.toml:2: notify.webhook.url: is itself a secret")
    assert "everlean-notify-url" in line
    assert "hush" not in line


@pytest.mark.parametrize("listen", ["127.0.0.1:9464", "127.1.2.3:1", "[::1]:9464"])
def test_this_machine_s_own_addresses_may_be_listened_on(listen: str, tmp_path: Path) -> None:
    assert settings(f'[metrics]\nlisten = "{listen}"', tmp_path).metrics.listen == listen


def test_another_address_has_to_be_wanted_in_so_many_words(tmp_path: Path) -> None:
    for text in ('listen = "0.0.0.0:9464"\npublic = true', 'public = true\nlisten = "0.0.0.0:9464"'):
        assert settings(f"[metrics]\n{text}", tmp_path).metrics.public
