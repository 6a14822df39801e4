"""The example for Kubernetes, held against the settings, Ray's options, and itself."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemon.settings import parse

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "kuberay"
OBJECTS: dict[str, Any] = {
    one["kind"]: one for one in yaml.safe_load_all((EXAMPLE / "everlean.yaml").read_text(encoding="utf-8"))
}
CLUSTER = OBJECTS["RayCluster"]["spec"]
HEAD, WORKERS = CLUSTER["headGroupSpec"], CLUSTER["workerGroupSpecs"]
DAEMON = OBJECTS["StatefulSet"]["spec"]
PODS = [HEAD["template"]["spec"], *(one["template"]["spec"] for one in WORKERS), DAEMON["template"]["spec"]]
PLACE = Path("/etc/everlean/config.toml")
SETTINGS = parse(OBJECTS["ConfigMap"]["data"][PLACE.name].encode(), path=PLACE)


def every(value: object, key: str) -> Iterator[Any]:
    """Yield what stands under a key, wherever that is."""
    if isinstance(value, dict):
        for name, inside in value.items():
            if name == key:
                yield inside
            yield from every(inside, key)
    elif isinstance(value, list):
        for inside in value:
            yield from every(inside, key)


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"]}


def test_the_daemon_s_settings_lead_to_this_cluster_with_its_token() -> None:
    engine, name = SETTINGS.engine, OBJECTS["RayCluster"]["metadata"]["name"]
    # KubeRay names the head's service so, and 6379 is the port of a head.
    assert (engine.kind, engine.address) == ("ray", f"{name}-head-svc:6379")
    for pod in PODS:
        (container,) = pod["containers"]
        of_ray = {key: value for key, value in environment(container).items() if key.startswith("RAY_AUTH")}
        assert of_ray == {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": engine.token_file}
        mounts = {one["name"]: Path(one["mountPath"]) for one in container["volumeMounts"]}
        (secret,) = (one for one in pod["volumes"] if "secret" in one)
        assert mounts[secret["name"]] == Path(engine.token_file).parent
        assert mounts.keys() <= {one["name"] for one in pod["volumes"]}


def test_daemon_and_workers_see_the_same_folders_and_toolchains_under_the_same_paths() -> None:
    seen = set()
    for pod in PODS[1:]:
        (container,) = pod["containers"]
        (shared,) = (one for one in container["volumeMounts"] if one["name"] == "shared")
        (volume,) = (one for one in pod["volumes"] if one["name"] == "shared")
        variables = environment(container)
        seen.add((shared["mountPath"], str(volume), variables["ELAN_HOME"], variables["PATH"]))
    assert len(seen) == 1
    (mount, _, elan, _) = seen.pop()
    folders = (SETTINGS.paths.state, SETTINGS.paths.cache, Path(elan))
    assert all(folder.is_relative_to(mount) for folder in folders)
    assert OBJECTS["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_head_has_no_dashboard_and_only_workers_have_cpus() -> None:
    head, (workers,) = HEAD["rayStartParams"], [one["rayStartParams"] for one in WORKERS]
    assert head["include-dashboard"] == "false"
    assert (head["num-cpus"], workers["num-cpus"]) == ("0", "4")
    (worker,) = PODS[1]["containers"]
    assert worker["livenessProbe"]["tcpSocket"]["port"] == int(workers["node-manager-port"])


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray_has_the_options_that_the_example_gives_it() -> None:
    from ray.scripts.scripts import start

    options = {name for parameter in start.params for name in (*parameter.opts, *parameter.secondary_opts)}
    (daemon,) = PODS[2]["containers"]
    given = re.findall(r"--[a-z-]+", daemon["args"][0])
    for params in (HEAD["rayStartParams"], *(one["rayStartParams"] for one in WORKERS)):
        assert all(isinstance(value, str) for value in params.values())
        given += [f"--{name}" for name in params]
    assert set(given) <= options


def test_what_runs_lean_may_make_user_namespaces_and_nothing_else_that_a_pod_may_not() -> None:
    for pod in PODS[1:]:
        (container,) = pod["containers"]
        # Kubernetes takes an unmasked /proc only together with a user namespace of the pod's own.
        assert pod["hostUsers"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "procMount": "Unmasked",
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "Unconfined"},
        }
    for pod in PODS:
        assert pod["securityContext"]["runAsNonRoot"]
        assert f"useradd --system --uid {pod['securityContext']['runAsUser']} " in (
            ROOT / "release" / "Containerfile"
        ).read_text(encoding="utf-8")


def test_there_is_one_daemon_one_image_and_one_version_of_ray() -> None:
    assert DAEMON["replicas"] == 1
    assert DAEMON["selector"]["matchLabels"] == DAEMON["template"]["metadata"]["labels"]
    assert len(set(every([PODS], "image"))) == 1
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None
    assert CLUSTER["rayVersion"] == pinned[1]


def test_quantities_are_kubernetes_own() -> None:
    quantities = [
        value for key in ("requests", "limits") for item in every(OBJECTS, key) for value in item.values()
    ]
    assert len(quantities) > 6
    assert all(re.fullmatch(r"[1-9]\d*(\.\d+)?(m|[kKMGTPE]i?)?", one) for one in quantities)
