"""What has changed between two configurations."""

from __future__ import annotations

import pytest

from llmsnap.config.loader import Loaded, loads, loads_all
from llmsnap.config.reload import Changes, changes
from llmsnap.config.schema import Config

BASE = """
memory: {mode: off}
models:
  a: {cmd: "serve --port ${PORT}", ttl: 5}
  c: {cmd: "serve --port ${PORT} -m c.gguf", aliases: [cc]}
"""


def between(old: str, new: str) -> Changes:
    """The changes from one text to another, which is read while the first one runs."""
    return changes(loads(old).config, again(loads(old), new).config)


def again(running: Loaded, text: str) -> Loaded:
    """What `text` says while `running` runs."""
    return loads_all([("config.yaml", text)], running=running)


def test_the_same_file_changes_nothing() -> None:
    """Nor do comments, blanks and the order of keys."""
    found = between(BASE, "# new\n" + BASE.replace("serve --port", "serve   --port"))
    assert found == Changes(adopted=("a", "c"))  # the command is written in another way
    assert not between(BASE, BASE + "# a comment\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-m c.gguf", "-m d.gguf"),
        ("aliases: [cc]", "aliases: [cc], env: [A=1]"),
        ("aliases: [cc]", "aliases: [cc], proxy: 'http://localhost:9999'"),
    ],
    ids=["command", "env", "proxy"],
)
def test_another_process_is_a_restart(old: str, new: str) -> None:
    """A command, an environment or an address can't be changed in a process that lives."""
    assert between(BASE, BASE.replace(old, new)) == Changes(restarted=("c",))


@pytest.mark.parametrize(
    "more",
    [
        "ttl: 7",
        "filters: {stripParams: top_p}",
        "concurrencyLimit: 3",
        "unlisted: true",
        "sleepMode: 'off'",
        "ram: 4GiB",
        "pinned: true",
        "unloadTimeout: 3",
        "checkEndpoint: /up",
        "timeouts: {connect: 3}",
    ],
)
def test_other_settings_are_adopted(more: str) -> None:
    """Everything that isn't about the process itself."""
    found = between(BASE, BASE.replace("aliases: [cc]", f"aliases: [cc], {more}"))
    assert found == Changes(adopted=("c",))


def test_what_is_inherited_shows_in_the_models() -> None:
    """Only those that don't say it themselves."""
    assert between(BASE, "globalTTL: 9\n" + BASE) == Changes(adopted=("c",))


def test_models_come_and_go() -> None:
    """By their ids, so that a new name is a new model."""
    assert between(BASE, BASE.replace("  a:", "  b:")) == Changes(added=("b",), removed=("a",))


def test_a_new_model_leaves_the_ports_of_others_alone() -> None:
    """It gets one that is free, wherever it stands; one that is gone leaves its port to others."""
    running = loads(BASE)
    assert running.ports == {"a": 5800, "c": 5801}
    more = again(running, BASE + "  b: {cmd: 'serve ${PORT}'}\n")
    assert more.ports == {"a": 5800, "b": 5802, "c": 5801}
    assert changes(running.config, more.config) == Changes(added=("b",))
    fewer = again(more, "models: {c: {cmd: 'serve --port ${PORT} -m c.gguf'}}")
    assert fewer.ports == {"c": 5801}
    assert again(fewer, BASE).ports == {"a": 5800, "c": 5801}


def test_another_start_port_counts() -> None:
    """Then all of them move."""
    found = between(BASE, "startPort: 7000\n" + BASE)
    assert found == Changes(restarted=("a", "c"))


def test_what_waits_for_a_restart_is_named() -> None:
    """With the reason; the rest of the top of the file counts at once."""
    found = between(BASE, "store: {path: x.db}\nlogLevel: debug\n" + BASE)
    assert found.settings == ("logLevel", "store")
    assert found.waiting == ("store (the database is opened at the start)",)
    assert str(found) == (
        "changed at the top: logLevel, store; "
        "only after a restart of llmsnap: store (the database is opened at the start)"
    )


def test_nothing_is_said_in_words_too() -> None:
    """For the log."""
    assert str(changes(Config(), Config())) == "nothing has changed"
