"""Commands with other settings."""

from __future__ import annotations

from llmsnap.bench.variants import variants

ARGV = ["llama-server", "-m", "a b.gguf", "--port", "5800", "--cache-type-k", "q4_1", "-c", "4096"]


def test_what_the_command_says_of_the_cache_is_replaced() -> None:
    """However it is spelled; what isn't varied stays."""
    (only,) = variants(ARGV, types=["q8_0"], flash=["on"], contexts=[], parallels=[])

    assert only.name == "kv-q8_0-fa-on"
    assert only.command == (
        "llama-server -m 'a b.gguf' -c 4096 --port ${PORT} -ctk q8_0 -ctv q8_0 -fa on"
    )


def test_a_quantised_cache_needs_flash_attention() -> None:
    """llama.cpp refuses it without."""
    found = variants(ARGV, types=["f16", "q4_0"], flash=["on", "off"], contexts=[], parallels=[])

    assert [one.name for one in found] == ["kv-f16-fa-on", "kv-f16-fa-off", "kv-q4_0-fa-on"]


def test_contexts_and_slots_are_combined() -> None:
    """With names that tell them apart."""
    found = list(variants(ARGV, types=["f16"], flash=["on"], contexts=[1, 2], parallels=[3, 4]))

    assert len({one.name for one in found}) == 4
    assert found[-1].command.endswith("-fa on -c 2 -np 4")
