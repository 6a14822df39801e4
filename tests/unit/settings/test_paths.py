"""Which configuration is used, and where its daemon's folders lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.place import paths as paths_module
from daemon.place.paths import ConfigNotFoundError, Paths, find_config, paths_from_config
from daemon.settings import load
from store.domain.identity import slug


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "EVERLEAN_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
        "STATE_DIRECTORY", "CACHE_DIRECTORY", "RUNTIME_DIRECTORY",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(paths_module, "SYSTEM_CONFIG", tmp_path / "etc" / "config.toml")


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_places_are_looked_at_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = write(tmp_path / "home" / ".config" / "everlean" / "config.toml")
    assert find_config() == user
    system = write(tmp_path / "etc" / "config.toml")
    assert find_config() == system
    named = write(tmp_path / "named.toml")
    monkeypatch.setenv("EVERLEAN_CONFIG", str(named))
    assert find_config() == named
    assert find_config(user) == user


def test_a_named_file_that_is_missing_is_an_error_and_no_reason_to_look_further(tmp_path: Path) -> None:
    write(tmp_path / "here" / "config.toml")
    with pytest.raises(ConfigNotFoundError, match="named by --config"):
        find_config(tmp_path / "none.toml")


def test_a_clones_own_file_is_read_only_where_it_is_named(tmp_path: Path) -> None:
    clone = write(tmp_path / "here" / "config.toml")
    with pytest.raises(ConfigNotFoundError, match=r"--config config\.toml names this folder's"):
        find_config()
    assert find_config(Path("config.toml")) == clone
    system = write(tmp_path / "etc" / "config.toml")
    assert find_config() == system


def test_no_configuration_at_all_says_where_was_looked() -> None:
    with pytest.raises(
        ConfigNotFoundError,
        match=r"etc/config\.toml and .*everlean/config\.toml.*everlean init.*--config FILE",
    ):
        find_config()


def test_unset_folders_are_those_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(tmp_path / "config.toml")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    home = tmp_path / "home"
    assert paths_from_config(config) == Paths(
        home / ".local/state/everlean", home / ".cache/everlean", Path("/run/user/7/everlean")
    )


def test_two_state_folders_share_neither_mirrors_nor_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    one = paths_from_config(write(tmp_path / "a" / "config.toml", '[daemon]\nstate_dir = "s"\n'))
    two = paths_from_config(write(tmp_path / "b" / "config.toml", '[daemon]\nstate_dir = "s"\n'))
    assert one.state == tmp_path / "a" / "s"
    assert len({one.socket, two.socket, one.mirrors, two.mirrors}) == 4


def test_systemds_folders_go_before_the_defaults_and_after_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
    monkeypatch.setenv("CACHE_DIRECTORY", "/var/cache/one")
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/one")
    result = paths_from_config(write(tmp_path / "config.toml", '[daemon]\ncache_dir = "/c"\n'))
    assert result == Paths(Path("/var/lib/one"), Path("/c"), Path("/run/one"))


def test_a_user_finds_the_system_services_folders_through_its_configuration(tmp_path: Path) -> None:
    result = paths_from_config(write(tmp_path / "etc" / "config.toml"))
    assert result == Paths(Path("/var/lib/everlean"), Path("/var/cache/everlean"), Path("/run/everlean"))


@pytest.mark.parametrize(
    "broken", ["[poll]\nevery = 5m\n", "[[repos]\n", 'x = "unclosed\n', "cache_dir = [\n"]
)
def test_the_folders_are_found_in_a_file_with_an_error_elsewhere(broken: str, tmp_path: Path) -> None:
    config = write(tmp_path / "config.toml", f'[daemon]\nstate_dir = "data" # mine\n{broken}')
    assert paths_from_config(config).state == tmp_path / "data"


def test_settings_and_the_quick_look_agree_on_the_folders(tmp_path: Path) -> None:
    config = write(tmp_path / "config.toml", '[daemon]\nstate_dir = "~/x"\nruntime_dir = "r"\n')
    assert load(config).paths == paths_from_config(config)


def test_different_repositories_never_share_a_slug() -> None:
    keys = [
        "a.org/b/c",
        "a.org/b+c",
        "a.org/b%2Bc",
        "a.org/b%2Fc",
        "a.org/B/c",
        "a.org:8/b/c",
        "local/x y/../z",
    ]
    slugs = {slug(key) for key in keys}
    assert len(slugs) == len(keys)
    assert not any("/" in name or name.startswith(".") for name in slugs)
