"""One log line a request, but for what monitors poll."""

from __future__ import annotations

import re

import pytest

from llmsnap.web.accesslog import AccessLog
from tests.web.fleet import config_of, front_of
from tests.web.serving import serving

Lines = list[str]


async def logged(*paths: str, polls: bool = False, headers: dict[str, str] | None = None) -> Lines:
    """The lines that requests for `paths` leave, without the times that they took."""
    lines: Lines = []
    log = AccessLog(lines.extend, polls=polls)
    headers = {"User-Agent": "test/1", **(headers or {})}
    async with serving(front_of(config_of("a")), headers=headers, log=log) as site:
        for path in paths:
            await site.ask(path)
    assert all(re.search(r" \d+\.\dms$", line) for line in lines)
    return [line.rpartition(" ")[0] for line in lines]


async def test_a_request_is_one_line_in_llama_swaps_words() -> None:
    """Who, what as it was received, status, bytes, agent, time."""
    first, second = await logged("/logs?x=%20", "/nowhere")

    assert first == 'Request 127.0.0.1 "GET /logs?x=%20 HTTP/1.1" 200 0 "test/1"'
    assert second.startswith('Request 127.0.0.1 "GET /nowhere HTTP/1.1" 404 ')


@pytest.mark.parametrize(
    ("headers", "ip"),
    [
        ({"X-Forwarded-For": "10.1.2.3, 10.0.0.1"}, "10.1.2.3"),
        ({"X-Real-IP": "10.1.2.4"}, "10.1.2.4"),
        ({"X-Forwarded-For": "10.1.2.3", "X-Real-IP": "10.1.2.4"}, "10.1.2.3"),
    ],
)
async def test_the_client_is_whom_a_proxy_in_front_names(headers: dict[str, str], ip: str) -> None:
    """Else the peer."""
    (line,) = await logged("/running", headers=headers)

    assert line.startswith(f"Request {ip} ")


@pytest.mark.parametrize(("polls", "count"), [(False, 0), (True, 3)])
async def test_polls_stay_out_of_the_log(polls: bool, count: int) -> None:
    """`/health` and what the page looks at are for debugging, `/wol-health` for nobody."""
    lines = await logged("/health", "/api/models", "/ui/", "/wol-health", polls=polls)

    assert len(lines) == count


async def test_looks_that_fail_are_logged() -> None:
    """They say that somebody asks for what there isn't."""
    (line,) = await logged("/health", "/api/nothing")

    assert line.startswith('Request 127.0.0.1 "GET /api/nothing HTTP/1.1" 404 ')


async def test_what_isnt_http_is_a_line_too() -> None:
    """Whoever wonders who that was finds the address."""
    lines: Lines = []
    async with serving(front_of(config_of("a")), log=AccessLog(lines.extend)) as site:
        await site.exchange(b"\x00\x01\r\n\r\n")

    assert lines[0].startswith('Request 127.0.0.1 "UNKNOWN / HTTP/1.0" 400 ')


async def test_a_line_stays_short_whatever_the_client_sends() -> None:
    """Else one request with a head of 60 KB would push half of the log out of memory."""
    headers = {"User-Agent": "u" * 9000, "X-Forwarded-For": "f" * 9000}
    (line,) = await logged(f"/running?{'q' * 9000}", headers=headers)

    assert len(line) < 4000
    assert "uuu…" in line
    assert "fff…" in line
    assert "qqq…" in line
