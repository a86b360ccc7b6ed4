"""The step below a checkpoint, on processes that stand in for checkpointed ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

import pytest

from llmsnap.errors import SleepRefused, WakeFailed
from llmsnap.memory.host import Host
from llmsnap.sleep import rates
from llmsnap.sleep.driver import Supported, Unsupported
from llmsnap.sleep.offload import Pace
from llmsnap.sleep.secondstep import SecondStep
from tests.sleep.holder import MIB, holding

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs Linux and CAP_SYS_NICE"
)


async def anyone(pids: Collection[int], host: str, port: int) -> bool:
    """Whoever is asked for listens."""
    return True


async def nobody(pids: Collection[int], host: str, port: int) -> bool:
    """The server is elsewhere."""
    return False


async def test_out_and_back_without_a_stop(swap: None) -> None:
    """The driver's calls on a stopped process would hang, so it never is; all of it comes back."""
    async with holding(64) as holder:
        before, step = await holder.checksum(), SecondStep(Host(), anyone)
        out = await step.page_out(holder.target())
        assert holder.state == "S"
        assert holder.usage.anonymous_bytes < 7 * MIB
        assert out.bytes["ram"] < -60 * MIB
        assert out.bytes["swap"] > 58 * MIB

        back = await step.bring_back(holder.target())
        assert holder.usage.anonymous_bytes >= 64 * MIB
        assert holder.usage.swap_bytes < MIB
        assert back.bytes["ram"] == -back.bytes["swap"] > 58 * MIB
        assert await holder.checksum() == before


async def test_learns_how_long_the_trip_takes(swap: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first time nothing is predicted."""
    monkeypatch.setattr(rates, "_LEAST_BYTES", MIB)
    async with holding(64) as holder:
        step = SecondStep(Host(), anyone)
        out = await step.page_out(holder.target())
        assert step.trip_s(64 * MIB) is None
        back = await step.bring_back(holder.target())
        predicted_s = step.trip_s(back.bytes["ram"])
        assert predicted_s is not None
        assert abs(predicted_s - out.seconds - back.seconds) < 0.6


async def test_only_the_listener_counts(swap: None) -> None:
    """GPUs may be open, for that is what it is for."""
    async with holding(16) as holder:
        verdict = await SecondStep(Host(), anyone).probe(holder.target())
        assert isinstance(verdict, Supported)
        assert not verdict.can_pause
        refused = await SecondStep(Host(), nobody).probe(holder.target())
        assert isinstance(refused, Unsupported)


async def test_what_cant_be_paged_out_is_as_well_as_before(swap: None) -> None:
    """The caller may leave it in RAM."""
    async with holding(16, "--lock") as holder:
        with pytest.raises(SleepRefused, match="stay in memory"):
            await SecondStep(Host(), anyone).page_out(holder.target())


async def test_too_slow_a_disk(swap: None) -> None:
    """Both ways end in an error, in time."""
    at_once = SecondStep(Host(), anyone, pace=Pace(base_s=0, lowest_rate=1e18))
    async with holding(64) as holder:
        with pytest.raises(SleepRefused, match="too slow"):
            await at_once.page_out(holder.target())
        await SecondStep(Host(), anyone).page_out(holder.target())
        with pytest.raises(WakeFailed, match="too slow"):
            await at_once.bring_back(holder.target())


async def test_a_process_that_has_ended() -> None:
    """Every call says so in its own way."""
    step = SecondStep(Host(), anyone)
    async with holding(1) as holder:
        gone = holder.target()
    assert isinstance(await step.probe(gone), Unsupported)
    with pytest.raises(SleepRefused, match="has ended"):
        await step.page_out(gone)
    with pytest.raises(WakeFailed, match="has ended"):
        await step.bring_back(gone)
