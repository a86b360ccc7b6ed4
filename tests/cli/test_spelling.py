"""Command lines of the predecessors mean here what they meant there."""

from __future__ import annotations

import pytest

from llmsnap.cli.spelling import normal


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("", "serve"),
        ("-config c.yaml -listen :8080", "serve --config c.yaml --listen :8080"),
        ("--config=c.yaml --listen=:8080", "serve --config=c.yaml --listen=:8080"),
        ("-config=c.yaml", "serve --config=c.yaml"),
        ("-config=", "serve --config="),
        ("-tls-cert-file a -tls-key-file b", "serve --tls-cert-file a --tls-key-file b"),
        ("-watch-config -config c", "serve --watch-config --config c"),
        ("-watch-config=true", "serve --watch-config"),
        ("-watch-config=false", "serve"),
        ("-config-dir d", "serve --config-dir d"),
        ("serve -config c", "serve --config c"),
        ("check -config c", "check --config c"),
        ("logs -f a", "logs -f a"),
        ("load -config", "load --config"),
        ("-h", "-h"),
        ("--help", "--help"),
        ("-nonsense", "serve -nonsense"),
        ("---config x", "serve ---config x"),
        ("-version", "--version"),
        ("--version", "--version"),
        ("-config c -version", "--version"),
        ("-version=false -config c", "serve --config c"),
        ("ps --url -config", "ps --url --config"),
    ],
)
def test_gos_spelling_is_read(line: str, meant: str) -> None:
    """One dash or two, blank or `=`, no command at all."""
    assert normal(line.split()) == meant.split()
