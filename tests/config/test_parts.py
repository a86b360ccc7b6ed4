"""Models in several files."""

from __future__ import annotations

from llmsnap.config.parts import parts_of


def test_any_part_names_them_all() -> None:
    """In their order; what isn't one of several is itself."""
    assert parts_of("/a/m-00002-of-00002.gguf") == (
        "/a/m-00001-of-00002.gguf",
        "/a/m-00002-of-00002.gguf",
    )
    assert parts_of("/a/m.gguf") == ("/a/m.gguf",)


def test_a_number_of_parts_that_cannot_be_is_part_of_a_name() -> None:
    """A hundred thousand files aren't looked for."""
    for name in ("m-00001-of-99999.gguf", "m-00001-of-00000.gguf"):
        assert parts_of(name) == (name,)
