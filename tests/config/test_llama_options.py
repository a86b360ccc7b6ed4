"""llama-server's options, by name and with dashes."""

from __future__ import annotations

import pytest

from llmsnap.config.llama_options import option_of


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [
        ("c", "4096", ("-c", "4096")),
        ("ctx-size", "4096", ("--ctx-size", "4096")),
        ("ngl", "99", ("-ngl", "99")),
        ("flash-attn", "on", ("--flash-attn", "on")),
        ("fa", "1", ("-fa", "1")),
        ("jinja", "true", ("--jinja",)),
        ("jinja", "false", ("--no-jinja",)),
        ("no-jinja", "true", ("--no-jinja",)),
        ("no-jinja", "false", ("--jinja",)),
        ("no-warmup", "true", ("--no-warmup",)),
        ("no-mmap", "1", ("--no-mmap",)),
        ("mmap", "off", ("--no-mmap",)),
        ("metrics", "true", ("--metrics",)),
        ("metrics", "false", ()),
        ("mlock", "off", ()),
        ("no-mlock", "on", ()),
        ("no-mlock", "off", ("--mlock",)),
        ("kvu", "true", ("-kvu",)),
        ("mmproj", "/x.gguf", ("--mmproj", "/x.gguf")),
        ("no-mmproj", "true", ("--no-mmproj",)),
        ("chat-template-kwargs", '{"a": true}', ("--chat-template-kwargs", '{"a": true}')),
    ],
)
def test_each_has_its_form(name: str, value: str, option: tuple[str, ...]) -> None:
    """Switches take no value, and are left out where being off has no form."""
    assert option_of(name, value) == option
