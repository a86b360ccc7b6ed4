"""How models sleep: modes and what they inherit, and keys that can't have an effect."""

from __future__ import annotations

import pytest

from llmsnap.config.schema import WakeProbe
from tests.config.reading import loaded, model, read, refusal

STEPS = "sleepEndpoints: [{endpoint: /s}], wakeEndpoints: [{endpoint: /w}]"


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("auto", "auto"),
        ("cuda", "cuda"),
        ("pageout", "pageout"),
        ("off", "off"),
        ("endpoints", "endpoints"),
        ("enable", "endpoints"),
        ("disable", "off"),
    ],
)
def test_modes(written: str, mode: str) -> None:
    """Those of llmsnap (Go) mean the same as two of ours."""
    assert model(f'{{cmd: "z ${{PORT}}", sleepMode: {written}, {STEPS}}}').sleep_mode == mode


def test_a_model_inherits_mode_and_time() -> None:
    """Its own values win, also when they are 0; null is not set."""
    above = "sleep: {mode: pageout, after: 2m}\n"
    bare = model('{cmd: "z ${PORT}"}', above=above)
    own = model('{cmd: "z ${PORT}", sleepMode: off, sleepAfter: 0}', above=above)
    null = model('{cmd: "z ${PORT}", sleepMode: ~, sleepAfter: ~}', above=above)

    assert (bare.sleep_mode, bare.sleep_after_s) == ("pageout", 120.0)
    assert (own.sleep_mode, own.sleep_after_s) == ("off", 0.0)
    assert (null.sleep_mode, null.sleep_after_s) == ("pageout", 120.0)


def test_without_a_word_models_sleep_by_what_works() -> None:
    """After five minutes, in half of the RAM, on one GPU."""
    config = read("models: {a: {cmd: 'z ${PORT}'}}")

    assert (config.models["a"].sleep_mode, config.models["a"].sleep_after_s) == ("auto", 300.0)
    assert (config.sleep.ram_budget_bytes, config.sleep.multi_gpu) == (None, False)
    assert config.models["a"].wake_probe == WakeProbe(endpoint="/v1/completions", body="")


def test_the_global_settings() -> None:
    """A size and times in words."""
    sleep = read("sleep: {mode: off, after: 0, ramBudget: 8GiB, multiGpu: true}").sleep

    assert (sleep.mode, sleep.after_s) == ("off", 0.0)
    assert (sleep.ram_budget_bytes, sleep.multi_gpu) == (8 * 2**30, True)


@pytest.mark.parametrize("mode", ["enable", "disable", "maybe", '""'])
def test_the_global_mode_has_no_older_names(mode: str) -> None:
    """No file can have them there."""
    assert refusal(f"sleep: {{mode: {mode}}}").startswith("config.yaml:1: sleep.mode: ")


def test_a_global_mode_of_endpoints_demands_none() -> None:
    """It is for those that have some; the others can't sleep, which is no mistake."""
    config = read("sleep: {mode: endpoints}\nmodels: {a: {cmd: 'z ${PORT}'}}")

    assert config.models["a"].sleep_mode == "endpoints"


def test_what_is_asked_around_the_steps() -> None:
    """Macros work in all of it."""
    m = model(
        '{cmd: "z ${PORT}", '
        + STEPS
        + ', isAsleepEndpoint: " /${x} ", wakeCanary: "p ${PORT}", '
        + 'wakeProbe: {endpoint: /v1/embeddings, body: \'{"input": "${x}"}\'}}',
        above="macros: {x: y}\n",
    )

    assert (m.is_asleep_endpoint, m.wake_canary) == ("/y", "p 5800")
    assert (m.wake_probe.endpoint, m.wake_probe.body) == ("/v1/embeddings", '{"input": "y"}')


@pytest.mark.parametrize(
    ("keys", "noted", "missing"),
    [
        ("sleepEndpoints: [{endpoint: /s}]", "sleepEndpoints", "wakeEndpoints"),
        ("wakeEndpoints: [{endpoint: /w}]", "wakeEndpoints", "sleepEndpoints"),
        ("wakeCanary: x", "wakeCanary", "sleepEndpoints and wakeEndpoints"),
        ("isAsleepEndpoint: /i", "isAsleepEndpoint", "sleepEndpoints and wakeEndpoints"),
        ("wakeProbe: {endpoint: none}", "wakeProbe", "sleepEndpoints and wakeEndpoints"),
    ],
)
def test_keys_without_effect_give_a_warning(keys: str, noted: str, missing: str) -> None:
    """As long as the model may sleep at all."""
    body = f"models: {{a: {{cmd: 'z ${{PORT}}', {keys}"

    assert loaded(body + "}}").warnings == (
        f"config.yaml:1: models.a.{noted}: it has no effect without {missing}; add steps there",
    )
    assert loaded(body + ", sleepMode: off}}").warnings == ()


def test_empty_lists_are_as_good_as_none() -> None:
    """Nobody meant anything by them."""
    text = "models: {a: {cmd: 'z ${PORT}', sleepEndpoints: [], wakeEndpoints: []}}"

    assert loaded(text).warnings == ()


@pytest.mark.parametrize("endpoint", ["http://[::1/x", "http://h:x/", "gopher://h/x", "http:///x"])
def test_endpoints_are_paths_or_urls(endpoint: str) -> None:
    """What can't be asked for is refused."""
    step = refusal(
        f"models: {{a: {{cmd: 'z ${{PORT}}', sleepEndpoints: [{{endpoint: '{endpoint}'}}]}}}}"
    )
    question = refusal(f"models: {{a: {{cmd: 'z ${{PORT}}', isAsleepEndpoint: '{endpoint}'}}}}")

    assert step.startswith("config.yaml:1: models.a.sleepEndpoints[0].endpoint: ")
    assert question.startswith("config.yaml:1: models.a.isAsleepEndpoint: ")


@pytest.mark.parametrize("endpoint", ["/s?x=1", "s", "../s", "http://h:1/s", "//h/s", "?x=1"])
def test_endpoints_may_be_of_any_kind(endpoint: str) -> None:
    """As in llmsnap (Go), they are resolved against `proxy`."""
    m = model(f'{{cmd: "z ${{PORT}}", sleepEndpoints: [{{endpoint: "{endpoint}"}}]}}')

    assert m.sleep_endpoints[0].endpoint == endpoint


@pytest.mark.parametrize("option", ["--sleep-idle-seconds 60", "--sleep-idle-seconds=60"])
def test_u117_an_engines_own_idle_timer_gives_a_warning(option: str) -> None:
    """Prompts that come as it fires are lost, or crash the server."""
    (warning,) = loaded(f"models: {{a: {{cmd: 'srv --port ${{PORT}} {option}'}}}}").warnings

    assert warning.startswith("config.yaml:1: models.a.cmd: with --sleep-idle-seconds the server")


@pytest.mark.parametrize(
    "model_keys",
    [
        "cmd: 'srv --port ${PORT} --sleep-idle-seconds -1'",
        "cmd: 'srv --port ${PORT} --sleep-idle-seconds=-1'",
        "cmd: 'srv --port ${PORT} --sleep-idle-seconds 60', sleepMode: off",
    ],
)
def test_a_timer_that_is_off_or_wanted_gives_none(model_keys: str) -> None:
    """Who turns llmsnap's sleep off may use the engine's."""
    assert loaded(f"models: {{a: {{{model_keys}}}}}").warnings == ()
