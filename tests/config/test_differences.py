"""What has another effect here than with llama-swap."""

from __future__ import annotations

import pytest

from tests.config.reading import loaded

OURS = "memory: {mode: off}\nsleep: {mode: off}\n"
A = "cmd: 'z ${PORT}', concurrencyLimit: 10"


def told(text: str) -> list[str]:
    """The keys that are told of."""
    return [sentence.split(": ")[0] for sentence in loaded(text).differences]


def test_a_file_of_llama_swaps_is_told_what_is_different() -> None:
    """In a line each, with what to write for the old way."""
    result = loaded("models: {a: {cmd: 'z ${PORT}'}, b: {cmd: 'z ${PORT}'}}")

    assert result.differences == (
        "memory: as many as fit are up, not one at a time as with `memory: {mode: off}`",
        "sleep: models that can sleep aren't stopped for others, but with `sleep: {mode: off}`",
        "models.*.concurrencyLimit: unset there is no limit; llama-swap has one of 10",
        "GET /props?model=…: loads nothing without `autoload=true`: it says what was said last",
    )


def test_who_has_decided_is_told_nothing() -> None:
    """A key of ours says that its writer knows."""
    assert told(OURS + f"models: {{a: {{{A}}}, b: {{{A}}}}}") == []
    assert told("") == []


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("groups: {g: {members: [a]}}", ""),
        ("matrix: {sets: {s: a, t: b}}", "matrix.sets"),
        (
            "routing: {scheduler: {settings: {fifo: {priority: {a: 1}}}}}",
            "routing.scheduler.settings.fifo.priority",
        ),
        ("sendLoadingState: true", "sendLoadingState"),
        ("healthCheckTimeout: 500", "healthCheckTimeout"),
        (
            "peers: {p: {proxy: 'http://p', models: [m]}}",
            "peers.*.timeouts.responseHeader",
        ),
        ("peers: {p: {proxy: 'http://p', models: [m], timeouts: {responseHeader: 60}}}", ""),
        ("apiKeys: [k]", "apiKeys"),
        ("hooks: {on_startup: {preload: [a]}}", "hooks.on_startup.preload"),
        ("logRequests: true", "logRequests"),
    ],
)
def test_each_key_is_told_of_where_it_stands(more: str, key: str) -> None:
    """And nothing else is."""
    text = OURS + f"models: {{a: {{{A}}}, b: {{{A}}}}}\n{more}\n"

    assert told(text) == ([key] if key else [])


@pytest.mark.parametrize("key", ["expectContinue", "idleConn"])
def test_timeouts_that_do_nothing(key: str) -> None:
    """One line for all models."""
    models = f"models: {{a: {{{A}, timeouts: {{{key}: 30}}}}, b: {{{A}, timeouts: {{{key}: 31}}}}}}"

    assert told(OURS + models) == [f"models.*.timeouts.{key}"]


def test_groups_and_memory() -> None:
    """They count together unless memory is turned off."""
    text = (
        f"sleep: {{mode: off}}\nmodels: {{a: {{{A}}}, b: {{{A}}}}}\ngroups: {{g: {{members: [a]}}}}"
    )

    assert loaded(text).differences == (
        "memory: counted besides what groups and matrix allow, but with `memory: {mode: off}`",
    )
