"""Global keys that need more than their type."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.reading import loaded, read, refusal


@pytest.mark.parametrize(
    ("written", "level"), [("debug", "debug"), ("WARN", "warn"), ("~", "info")]
)
def test_log_levels(written: str, level: str) -> None:
    """In any case."""
    assert read(f"logLevel: {written}").log_level == level


def test_an_unknown_log_level_is_info() -> None:
    """As in peers, but with a warning."""
    result = loaded("logLevel: warning")

    assert result.config.log_level == "info"
    assert result.warnings == (
        "config.yaml:1: logLevel: 'warning' isn't known and counts as 'info'; did you mean 'warn'?",
    )


def test_log_time_formats() -> None:
    """Names in any case; what isn't known is no time at all."""
    result = loaded("logTimeFormat: iso")

    assert read("logTimeFormat: RFC3339Nano").log_time_format == "rfc3339nano"
    assert read("logTimeFormat: ''").log_time_format == ""
    assert result.config.log_time_format == ""
    assert "logTimeFormat: 'iso' isn't known and counts as ''" in result.warnings[0]


def test_numbers_that_stand_for_others() -> None:
    """Where 0 or less has a meaning of its own."""
    config = read("metricsMaxInMemory: 0\ncaptureBuffer: -1\nunloadTimeout: 0\n")

    assert (config.metrics_max_in_memory, config.capture_buffer_mb) == (1000, 0)
    assert config.unload_timeout_s == 10


def test_api_keys_without_control_characters() -> None:
    """No header can carry them."""
    assert "apiKeys[0]: api key cannot contain spaces or control" in refusal('apiKeys: ["a\\tb"]')
    assert "apiKeys[0]: api key cannot contain spaces or control" in refusal('apiKeys: ["a\\x01"]')


def test_an_api_key_is_never_shown() -> None:
    """Not even when the key itself is of the wrong kind."""
    assert "sekrit" not in refusal("apiKeys: sekrit")


def test_the_store_is_a_file_that_can_be_written(tmp_path: Path) -> None:
    """It exists, or its directory does."""
    (tmp_path / "db").touch()

    for name in ("db", "new"):
        assert read(f"store: {{path: '{tmp_path / name}'}}").store.path == str(tmp_path / name)
    assert read("store: {path: ~}").store.path is None
    assert "is a directory; write a file name" in refusal(f"store: {{path: '{tmp_path}'}}")
    assert "doesn't exist or isn't writable" in refusal(f"store: {{path: '{tmp_path}/no/db'}}")


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "[[:alpha:]]", "a(?i)b", "*"])
def test_patterns(pattern: str) -> None:
    """What isn't a pattern here, or means something else than in Go, is refused."""
    message = refusal(f"upstream: {{ignorePaths: ['ok', '{pattern}']}}")

    assert message.startswith("config.yaml:1: upstream.ignorePaths[1]: invalid regular expression")


def test_patterns_replace_the_default() -> None:
    """An empty list too."""
    assert read("upstream: {ignorePaths: ['^/x']}").upstream.ignore_paths == ("^/x",)
    assert read("upstream: {ignorePaths: []}").upstream.ignore_paths == ()
    assert len(read("upstream: {ignorePaths: ~}").upstream.ignore_paths) == 1


def test_session_headers() -> None:
    """Trimmed, each once whatever its case; an empty list turns them off."""
    config = read("ui: {activity: {session_id: [' X-A ', x-a, X-B, '']}}")

    assert config.ui.activity.session_id == ("X-A", "X-B")
    assert read("ui: {activity: {session_id: []}}").ui.activity.session_id == ()
    assert len(read("").ui.activity.session_id) == 2


def test_new_keys() -> None:
    """Times and sizes in words."""
    config = read(
        """
        schedule: {fairAfter: 500ms, preemptAfter: 2m, hold: 0, maxWait: 1.5}
        memory: {mode: off, devices: {host: 600MiB, gpu0: 8GB}, prefetch: false}
        allowedHosts: [" LLM.Example.org ", ""]
        maxBody: 1GiB
        """
    )
    schedule = config.schedule

    assert (schedule.fair_after_s, schedule.preempt_after_s) == (0.5, 120.0)
    assert (schedule.hold_s, schedule.max_wait_s) == (0.0, 1.5)
    assert config.memory.mode == "off"
    assert config.memory.devices == {"host": 600 * 2**20, "gpu0": 8 * 10**9}
    assert not config.memory.prefetch
    assert read("").memory.prefetch
    assert config.allowed_hosts == ("llm.example.org",)
    assert config.max_body_bytes == 2**30


def test_a_body_limit_that_lets_nothing_through() -> None:
    """A number without its unit, most likely."""
    assert "maxBody: must be at least 1 KiB; write 256MiB" in refusal("maxBody: 256")
