"""What a model inherits, and checks of its values."""

from __future__ import annotations

import pytest

from tests.config.reading import loaded, model, refusal


def refused(keys: str) -> str:
    """Return the error of a model with `keys` besides its command."""
    return refusal(f"models:\n  m:\n    cmd: z ${{PORT}}\n    {keys}\n")


def test_inheritance() -> None:
    """A model's own value wins, also when it is false."""
    above = "globalTTL: 5\nunloadTimeout: 6\nsendLoadingState: true\n"
    bare = model('{cmd: "z ${PORT}"}', above=above)
    own = model('{cmd: "z ${PORT}", ttl: 0, unloadTimeout: 1, sendLoadingState: no}', above=above)
    null = model('{cmd: "z ${PORT}", ttl: ~, unloadTimeout: ~, sendLoadingState: ~}', above=above)

    assert (bare.ttl_s, bare.unload_timeout_s, bare.send_loading_state) == (5, 6, True)
    assert (own.ttl_s, own.unload_timeout_s, own.send_loading_state) == (0, 1, False)
    assert (null.ttl_s, null.unload_timeout_s, null.send_loading_state) == (5, 6, True)


@pytest.mark.parametrize(("written", "limit"), [("~", 0), ("0", 0), ("-3", 0), ("7", 7)])
def test_no_concurrency_limit_unless_one_is_set(written: str, limit: int) -> None:
    """Unlike in peers, where ten or a hundred requests are the most."""
    assert model(f'{{cmd: "z ${{PORT}}", concurrencyLimit: {written}}}').concurrency_limit == limit


def test_sleep_steps_inherit_their_timeout() -> None:
    """Each list has its own global value."""
    m = model(
        '{cmd: "z ${PORT}", sleepEndpoints: [{endpoint: /a}, {endpoint: /b, timeout: 3}], '
        "wakeEndpoints: [{endpoint: /c, timeout: 0}]}",
        above="sleepRequestTimeout: 20\nwakeRequestTimeout: 30\n",
    )

    assert [step.timeout_s for step in m.sleep_endpoints] == [20, 3]
    assert [step.timeout_s for step in m.wake_endpoints] == [30]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("sleepEndpoints: [{endpoint: ''}]", "models.m.sleepEndpoints[0].endpoint: endpoint is"),
        ("wakeEndpoints: [{method: GET}]", "models.m.wakeEndpoints[0].endpoint: 'endpoint' is req"),
        ("sleepEndpoints: [{endpoint: /s, timeout: -1}]", "[0].timeout: must be at least 0"),
        ("sleepEndpoints: [{endpoint: '${x}'}]", "models.m.sleepEndpoints[0].endpoint: unknown"),
        ("wakeEndpoints: [{endpoint: /w, body: '${x}'}]", "models.m.wakeEndpoints[0].body: unkn"),
    ],
)
def test_sleep_steps_are_checked(keys: str, message: str) -> None:
    """Even when the mode is off."""
    assert message in refused(keys)


@pytest.mark.parametrize(
    "proxy",
    ["localhost:8080", "''", "http://", "ftp://h", "http://h:99999", "http://h:x", "'http://h h'",
     "http://[::1", "/path", "'http://h:0'"],
)  # fmt: skip
def test_proxies_are_urls(proxy: str) -> None:
    """The error shows one that works."""
    message = refused(f"proxy: {proxy}")

    assert message.startswith("config.yaml:4: models.m.proxy: ")
    assert message.endswith("write one such as http://localhost:9000")


@pytest.mark.parametrize("proxy", ["http://h", "https://h:1/base/", "http://[::1]:5", "HTTP://H:1"])
def test_proxies_may_have_a_base_path(proxy: str) -> None:
    """And any host."""
    assert model(f'{{cmd: "z", proxy: "{proxy}"}}').proxy == proxy


@pytest.mark.parametrize(
    ("written", "name"),
    [("SIGINT", "SIGINT"), ("int", "SIGINT"), ("sigterm", "SIGTERM"), ("2", "SIGINT")],
)
def test_signals(written: str, name: str) -> None:
    """Long and short names, and numbers."""
    assert model(f'{{cmd: "z ${{PORT}}", stopSignal: {written}}}').stop_signal == name


@pytest.mark.parametrize("written", ["SIGFOO", "0", "''", "TERM INT"])
def test_no_signals(written: str) -> None:
    """The error shows some that work."""
    assert "models.m.stopSignal: " in refused(f"stopSignal: {written}")
    assert "write one such as SIGTERM or SIGINT" in refused(f"stopSignal: {written}")


def test_entries_of_the_environment() -> None:
    """What isn't NAME=value is left out, with a warning."""
    result = loaded("models: {m: {cmd: 'z ${PORT}', env: [A=1, B, '=c', 'D=', 'E=f=g']}}")

    assert result.config.models["m"].env == ("A=1", "D=", "E=f=g")
    assert [warning.split(": ")[1] for warning in result.warnings] == [
        "models.m.env[1]",
        "models.m.env[2]",
    ]


@pytest.mark.parametrize("key", ["cmd", "cmdStop", "env"])
def test_nul_characters(key: str) -> None:
    """No program can be given one."""
    value = '["A=\\0"]' if key == "env" else '"z ${PORT} \\0"'
    text = f"models: {{m: {{cmd: 'z ${{PORT}}', {key}: {value}}}}}"
    if key == "cmd":
        text = f"models: {{m: {{cmd: {value}}}}}"

    assert f"models.m.{key}: a NUL character" in refusal(text)


def test_protected_parameters() -> None:
    """No filter touches `model`; a path that only begins with it is another key."""
    m = model(
        '{cmd: "z ${PORT}", filters: {setParams: {model: x, model.a: 1}, '
        "setParamsByID: {q: {model: x, b: 2}}}}"
    )

    assert m.filters.set_params == {"model.a": 1}
    assert m.filters.set_params_by_id == {"q": {"b": 2}}
