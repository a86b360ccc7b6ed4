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


def test_keys_and_values_may_differ() -> None:
    """Only values of a quantised type need flash attention."""
    found = variants(ARGV, types=["q8_0/f16"], flash=["off"], contexts=[], parallels=[])

    assert [one.command[-30:] for one in found] == ["PORT} -ctk q8_0 -ctv f16 -fa off"[-30:]]


def test_other_spellings_are_replaced_too() -> None:
    """Values behind an equals sign, and `-fa` as the switch that it was."""
    argv = ["llama-server", "-fa", "--ctx-size=1024", "-m", "x", "-fa", "auto"]
    (only,) = variants(argv, types=["f16"], flash=["on"], contexts=[2048], parallels=[])

    assert only.command == ("llama-server -m x --port ${PORT} -ctk f16 -ctv f16 -fa on -c 2048")


def test_contexts_and_slots_are_combined() -> None:
    """With names that tell them apart."""
    found = list(variants(ARGV, types=["f16"], flash=["on"], contexts=[1, 2], parallels=[3, 4]))

    assert len({one.name for one in found}) == 4
    assert found[-1].command.endswith("-fa on -c 2 -np 4")
    assert [one.room for one in found] == ["c-1-np-3", "c-1-np-4", "c-2-np-3", "c-2-np-4"]
