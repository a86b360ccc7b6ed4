"""All findings together."""

from __future__ import annotations

from pathlib import Path

from llmsnap.config.loader import loads
from llmsnap.doctor.examine import Case, Report, examine
from llmsnap.doctor.finding import Finding, Status
from tests.doctor.places import FakeCuda, FakeProbe, meminfo, write
from tests.helpers.ports import free_port

TEXT = """
models:
  small: {cmd: "sh ${PORT}", ram: 2GiB}
  large: {cmd: "sh ${PORT}", ram: 9GiB}
  on_gpu: {cmd: "sh ${PORT}", ram: 30GiB, vram: 20GiB}
"""


def case(folder: Path, text: str | None = TEXT, *, platform: str = "linux") -> Case:
    """A machine with 8 GiB of swap, below `folder`."""
    write(folder / "proc", meminfo=meminfo(swap_gib=8, free_gib=8))
    port = free_port()
    return Case(
        loaded=None if text is None else loads(f"startPort: {port}\n{text}", environ={}),
        host="127.0.0.1",
        port=port,
        state=folder / "state",
        environ={"PATH": "/bin:/usr/bin"},
        probe=FakeProbe(),
        cuda=FakeCuda(),
        root=folder,
        platform=platform,
    )


def found(report: Report) -> dict[str, Finding]:
    """The findings by what was checked."""
    return {finding.check: finding for finding in report.findings}


async def test_everything_is_looked_at(tmp_path: Path) -> None:
    """In the order in which it is read; nothing is made on the way."""
    one = case(tmp_path)

    assert [finding.check for finding in (await examine(one)).findings] == [
        "gpu",
        "sleep by pageout",
        "ptrace",
        "swap",
        "memory",
        "configuration",
        "commands",
        "llama-server",
        f"port {one.port}",
        "state",
    ]
    assert not one.state.exists()


async def test_swap_must_hold_the_largest_model_on_the_cpu(tmp_path: Path) -> None:
    """Those on a GPU sleep elsewhere."""
    short = found(await examine(case(tmp_path)))
    enough = found(await examine(case(tmp_path, TEXT.replace("9GiB", "8GiB"))))

    assert (short["swap"].status, enough["swap"].status) == (Status.WARN, Status.OK)


async def test_without_a_configuration(tmp_path: Path) -> None:
    """The machine is looked at all the same."""
    report = await examine(case(tmp_path, None))
    checks = found(report)

    assert report.models == []
    assert "swap" in checks
    assert "configuration" not in checks
    assert "commands" not in checks


async def test_elsewhere_than_on_linux(tmp_path: Path) -> None:
    """Nothing is read of what only Linux has."""
    report = await examine(case(tmp_path, platform="darwin"))

    assert found(report)["sleep"].status is Status.WARN
    assert "on darwin models are stopped and started" in found(report)["sleep"].found
    assert "swap" not in found(report)
    assert all(not model.drivers for model in report.models)


async def test_each_model_has_its_driver(tmp_path: Path) -> None:
    """Told from this machine and the configuration, in its order."""
    write(tmp_path / "proc", self__status="CapEff:\t0000000000800000\n")

    models = {model.model: model.drivers for model in (await examine(case(tmp_path))).models}

    assert models == {"small": ("pageout",), "large": (), "on_gpu": ()}
