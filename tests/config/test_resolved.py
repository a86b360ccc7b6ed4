"""What `check` shows."""

from __future__ import annotations

import json

from llmsnap.config.resolved import all_secrets, resolved, rows, sentences
from tests.config.reading import loaded

TEXT = """
    apiKeys: [sk-client-key, k]
    macros: {hf_token: hf_macro_value, n_tokens: 4096}
    memory: {devices: {host: 2GiB, gpu0: 24GiB}}
    globalTTL: 60
    models:
      b:
        cmd: srv --port ${PORT} --api-key sk-upstream
        env: [HF_TOKEN=hf_env_value, A=1]
        cmdStop: sh -c "stop --api-key sk-for-stop"
        metadata: {note: "uses hf_env_value", n: 5, demo: {accessToken: "demo-token-1"}}
        aliases: [bb, bbb]
        ram: 1GiB
        vram: 8GiB
        pinned: true
      a: {cmd: "srv -t ${hf_token} --port ${PORT} 'x y'", ttl: 0, proxy: "http://h:${PORT}"}
    groups: {g: {members: [a]}}
    hooks: {on_startup: {preload: [bb]}}
    nope: 1
    """


def test_the_document_has_the_files_own_keys() -> None:
    """With values after macros and defaults, `argv`, `preload` and the warnings."""
    document = resolved(loaded(TEXT))
    b = document["models"]["b"]

    assert list(document["models"]) == ["a", "b"]
    assert b["argv"] == ["srv", "--port", "5801", "--api-key", "***"]
    assert b["cmd"] == "srv --port 5801 --api-key ***"
    assert (b["proxy"], b["checkEndpoint"]) == ("http://localhost:5801", "/health")
    assert (b["ttl"], b["unloadTimeout"], b["concurrencyLimit"]) == (60, 10, 0)
    assert (b["aliases"], b["env"]) == (["bb", "bbb"], ["HF_TOKEN=***", "A=1"])
    assert b["metadata"] == {
        "note": "uses ***", "n": 5, "demo": {"accessToken": "***"},
    }  # fmt: skip
    assert document["groups"]["g"] == {
        "swap": True, "exclusive": True, "persistent": False, "members": ["a"],
    }  # fmt: skip
    assert document["groups"]["(default)"]["members"] == ["b"]
    assert document["preload"] == ["b"]
    assert (document["healthCheckTimeout"], document["startPort"]) == (120, 5800)
    assert document["warnings"] == ["config.yaml:19: nope: unknown key; it is ignored"]


def test_no_secret_is_in_the_document() -> None:
    """Whatever key it stands under; numbers named after tokens are none."""
    document = resolved(loaded(TEXT))
    text = json.dumps(document)

    for secret in ("sk-client-key", "sk-upstream", "sk-for-stop", "hf_env_value", "hf_macro_value"):
        assert secret not in text
    assert document["apiKeys"] == ["***", "***"]
    assert document["macros"] == {"hf_token": "***", "n_tokens": 4096}


def test_all_secrets() -> None:
    """Of models, clients, macros and metadata; a key of one letter would blank everything."""
    assert all_secrets(loaded(TEXT).config) == (
        "demo-token-1",
        "hf_env_value",
        "hf_macro_value",
        "sk-client-key",
        "sk-for-stop",
        "sk-upstream",
    )


def test_rows_for_people() -> None:
    """One a model, in words."""
    a, b = rows(loaded(TEXT))

    assert (a.model, a.aliases, a.group, a.memory, a.ttl) == ("a", "", "g", "", "never")
    assert (a.proxy, a.command) == ("http://h:5800", "srv -t *** --port 5800 'x y'")
    assert (b.model, b.aliases, b.group) == ("b (pinned)", "bb, bbb", "(default)")
    assert (b.memory, b.ttl) == ("host 1 GiB, gpu0 8 GiB", "60 s")
    assert b.command == "srv --port 5801 --api-key ***"


def test_a_model_in_no_group() -> None:
    """It says so."""
    (row,) = rows(
        loaded("models: {a: {cmd: z, proxy: 'http://h'}}\ngroups: {(default): {members: [a]}}")
    )

    assert row.group == "none"


def test_a_password_in_the_address_of_a_server_is_blanked() -> None:
    """In the table and in the document."""
    found = loaded("models: {a: {cmd: z, proxy: 'http://me:hunter2222@127.0.0.1:9000'}}")

    assert rows(found)[0].proxy == "http://me:***@127.0.0.1:9000"
    assert resolved(found)["models"]["a"]["proxy"] == "http://me:***@127.0.0.1:9000"


def test_what_else_may_be_asked_for_is_said() -> None:
    """A line each; no key is in it."""
    result = loaded(
        """
        models: {a: {cmd: "z ${PORT}"}, b: {cmd: "z ${PORT}"}}
        matrix: {vars: {x: a}, sets: {s: x & b, t: +s, u: b | b}}
        peers: {box: {proxy: "http://u:secret-word@box", models: [m, n]}}
        selectors: {any: {strategy: pin, targets: [a, m]}}
        profiles: {p: {pins: {x: a, y: ~}}}
        default: a
        """
    )

    assert list(sentences(result)) == [
        "matrix s: x & b",
        "matrix t: +s",
        "matrix u: b | b",
        "default: a",
        "peer box at http://u:***@box: box/m, box/n",
        "selector any (pin): a, m",
        "profile p: x -> a, y -> nobody",
    ]
    assert [row.group for row in rows(result)] == ["s", "s, u"]
