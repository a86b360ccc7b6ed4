"""Units, containers and their neighbours agree with the proxy and with each other."""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmsnap import __version__
from llmsnap.app import GRACE_S
from llmsnap.cli import EX_CONFIG
from llmsnap.cli.release import release
from llmsnap.cli.serve import serve
from llmsnap.config.schema import ModelConfig
from llmsnap.sessions.keeper import BEFORE_STOP_S
from tests.helpers.proxy_process import running_proxy

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNITS = {"system": DEPLOY / "llmsnap.service", "user": DEPLOY / "user" / "llmsnap.service"}
ENDS_S = GRACE_S + 2 * ModelConfig().unload_timeout_s + BEFORE_STOP_S
"""What the proxy may take to end."""


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest) -> str:
    """Each of the units."""
    return str(request.param)


@pytest.fixture
def service(unit: str) -> configparser.SectionProxy:
    """The unit's section about the process."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(UNITS[unit])
    return parser["Service"]


def test_u66_the_proxy_ends_its_models_itself(service: configparser.SectionProxy) -> None:
    """systemd tells nobody but the proxy, and waits for longer than the proxy may take."""
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > ENDS_S


def test_a_wrong_configuration_isnt_tried_again(service: configparser.SectionProxy) -> None:
    """Anything else that failed is."""
    assert service["Restart"] == "on-failure"
    assert int(service["RestartPreventExitStatus"]) == EX_CONFIG


def test_u67_the_path_is_written_down(service: configparser.SectionProxy) -> None:
    """Services begin with a bare one."""
    assert "/usr/local/bin" in service["Environment"].removeprefix("PATH=").split(":")


def test_it_is_watched(service: configparser.SectionProxy) -> None:
    """Ready when it says so, hung when it says nothing; the end of one model is no end of it."""
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert int(service["WatchdogSec"]) > 0
    assert service["OOMPolicy"] == "continue"


def test_nothing_hides_what_sleep_drivers_need(service: configparser.SectionProxy) -> None:
    """GPUs, other processes' memory in /proc, code that is made as it goes."""
    hiding = {"MemoryDenyWriteExecute", "PrivateDevices", "PrivateUsers", "ProtectProc"}
    assert not {name.lower() for name in hiding} & {name.lower() for name in service}


def test_options_exist(service: configparser.SectionProxy) -> None:
    """Those that the units and the image begin llmsnap with."""
    known = {option for parameter in serve.params for option in parameter.opts}
    given = re.findall(r"--[\w-]+", service["ExecStart"])
    command = dockerfile().partition("\nCMD ")[2]
    assert {*given, *re.findall(r"--[\w-]+", command)} <= known


def test_u81_a_reload_is_a_hang_up(service: configparser.SectionProxy) -> None:
    """Of the proxy alone."""
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_u25a_the_unit_around_a_suspend_gives_its_orders() -> None:
    """With options that there are, and no way to keep the machine from sleeping."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(DEPLOY / "llmsnap-suspend.service")
    service = parser["Service"]
    known = {option for parameter in release.params for option in parameter.opts}
    assert service["ExecStart"].startswith("-/opt/llmsnap/bin/llmsnap release ")
    assert set(re.findall(r"--[\w-]+", service["ExecStart"])) <= known
    assert service["ExecStop"] == "-/opt/llmsnap/bin/llmsnap resume"
    assert parser["Unit"]["StopWhenUnneeded"] == "yes"
    assert parser["Install"]["WantedBy"] == parser["Unit"]["Before"] == "sleep.target"


def test_systemd_takes_it(unit: str, tmp_path: Path) -> None:
    """With this environment's llmsnap in the place of an installed one, and without a word."""
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze isn't installed")
    program = Path(sys.executable).with_name("llmsnap")
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={program}", UNITS[unit].read_text(), flags=re.M)
    copy = tmp_path / "llmsnap.service"
    copy.write_text(re.sub("^User=.*", "User=root", text, flags=re.M))
    argv = [analyze, f"--{unit}", "--man=no", "verify", str(copy)]
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    verified = subprocess.run(
        argv, env=environ, capture_output=True, text=True, check=False, timeout=60
    )

    said = [line for line in verified.stderr.splitlines() if "llmsnap" in line]
    assert not said
    assert verified.returncode == 0, verified.stderr


def test_the_unit_for_adoption_differs_only_where_it_must() -> None:
    """It leaves models alone, is started again after a handover, and `reload` hands over."""
    units = [(DEPLOY / name).read_text() for name in ("llmsnap.service", "llmsnap-adopt.service")]
    plain, adopting = (
        {line for line in unit.splitlines() if line and not line.startswith("#")} for unit in units
    )

    assert adopting - plain == {
        "ExecReload=/bin/kill -USR2 $MAINPID",
        "KillMode=process",
        "Restart=always",
    }
    assert plain - adopting == {
        "ExecReload=/bin/kill -HUP $MAINPID",
        "KillMode=mixed",
        "Restart=on-failure",
    }


# ---- containers --------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    """The compose file."""
    decoded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return decoded


@pytest.mark.parametrize("profile", ["cpu", "nvidia"])
def test_compose_takes_it(profile: str) -> None:
    """Each profile has one llmsnap, Prometheus and Grafana."""
    if (program := shutil.which("docker-compose")) is None:
        pytest.skip("docker-compose isn't installed")
    argv = [program, "--profile", profile, "-f", str(DEPLOY / "compose.yaml"), "config"]
    checked = subprocess.run(
        [*argv, "--quiet"],
        env={**os.environ, "GRAFANA_PASSWORD": "x"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert checked.returncode == 0, checked.stderr
    running = {name for name, of in compose()["services"].items() if profile in of["profiles"]}
    assert running == {profile, "grafana", "prometheus"}


def test_containers_may_take_as_long_as_the_proxy_does() -> None:
    """Docker would kill it after ten seconds."""
    for name in ("cpu", "nvidia"):
        assert int(compose()["services"][name]["stop_grace_period"].removesuffix("s")) > ENDS_S


def test_mounted_files_exist() -> None:
    """But for the user's own configuration and models."""
    services = compose()["services"].values()
    mounts = [mount for service in services for mount in service["volumes"]]
    mounted = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]

    for place in {*mounted} - {"./config", "./models"}:
        assert (DEPLOY / place).exists(), place


def test_who_asks_whom() -> None:
    """Prometheus scrapes llmsnap by its name and port, Grafana asks Prometheus by its own."""
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    ((target,),) = [c["targets"] for j in scraped["scrape_configs"] for c in j["static_configs"]]
    alias, _, port = target.partition(":")
    services = compose()["services"]
    for name in ("cpu", "nvidia"):
        assert alias in services[name]["networks"]["default"]["aliases"]
        assert services[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
    provisioned = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioned / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    found = yaml.safe_load((provisioned / "dashboards" / "llmsnap.yml").read_text())
    (folder,) = [provider["options"]["path"] for provider in found["providers"]]
    assert f"./grafana/dashboards:{folder}:ro" in services["grafana"]["volumes"]


def dockerfile() -> str:
    """The file that the image is made by."""
    return (DEPLOY / "Dockerfile").read_text()


def copied(folder: Path) -> None:
    """Put what the image is made of into `folder`, as the file says."""
    for line in re.findall(r"^COPY (.*)$", dockerfile(), re.MULTILINE):
        *sources, target = line.split()
        place = folder / target.lstrip("/")
        for source in map(ROOT.joinpath, sources):
            if source.is_dir():
                shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)


def test_the_image_has_a_package_that_works(tmp_path: Path) -> None:
    """It is built of what is copied and of nothing else; the command and the page are in it."""
    copied(tmp_path)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    argv = [*pip, "--target", str(tmp_path / "opt"), str(tmp_path / "src")]
    subprocess.run(argv, check=True, timeout=120)
    shutil.rmtree(tmp_path / "src")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "opt")}
    command = str(tmp_path / "opt" / "bin" / "llmsnap")
    said = subprocess.run(
        [command, "--version"], env=environ, capture_output=True, text=True, check=True, timeout=60
    )

    assert said.stdout.split() == ["llmsnap", __version__]
    assert (tmp_path / "opt" / "llmsnap" / "web" / "ui" / "index.html").exists()


def test_debian_has_what_the_image_installs() -> None:
    """By the names that the file uses."""
    if shutil.which("apt-cache") is None or not is_known_to_apt("apt"):
        pytest.skip("apt isn't there, or has no lists of packages")
    (python,) = re.findall(r"^ARG PYTHON=(.*)$", dockerfile(), re.MULTILINE)
    (packages,) = re.findall(r"apt-get install .* (\$\{PYTHON\} \S+)", dockerfile())

    for package in packages.replace("${PYTHON}", python).split():
        assert is_known_to_apt(package), package


def is_known_to_apt(package: str) -> bool:
    """Whether there is such a package for this machine."""
    argv = ["apt-cache", "show", package]
    return subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.mark.e2e
async def test_the_images_health_check_sees_whether_it_listens(tmp_path: Path) -> None:
    """By its exit code."""
    (found,) = re.findall(r"^HEALTHCHECK .*\n +(\[.*\])$", dockerfile(), re.MULTILINE)
    python, *arguments = json.loads(found)
    assert python == "python"
    async with running_proxy("models: {}\n", tmp_path) as proxy:
        port = proxy.url.rpartition(":")[2]
        argv = [sys.executable, *(one.replace("8080", port) for one in arguments)]
        codes = [await exit_code(argv)]
        await proxy.stop()
        codes.append(await exit_code(argv))

    assert codes == [0, 1]


async def exit_code(argv: list[str]) -> int:
    """Run a command to its end, with its complaints left out."""
    process = await asyncio.create_subprocess_exec(*argv, stderr=subprocess.DEVNULL)
    return await process.wait()
