"""What is a secret, and that it is blanked."""

from __future__ import annotations

import pytest

from llmsnap.config.secrets import (
    blank,
    blank_argv,
    blank_assignment,
    blank_command,
    blank_within,
    is_telling,
    names_secret,
    secret_values,
    secrets_within,
    server_key,
)


@pytest.mark.parametrize(
    ("argv", "secret"),
    [
        (["--api-key", "sk-12345"], "sk-12345"),
        (["--api-key=sk-12345"], "sk-12345"),
        (["--api_key", "sk-12345"], "sk-12345"),
        (["-hft", "hf_12345"], "hf_12345"),
        (["--hf-token", "hf_12345"], "hf_12345"),
        (["--admin-api-key", "sk-12345"], "sk-12345"),
        (["-e", "HF_TOKEN=hf_12345"], "hf_12345"),
        (["-eHF_TOKEN=hf_12345"], "hf_12345"),
        (["--env=HF_TOKEN=hf_12345"], "hf_12345"),
    ],
)
def test_secrets_in_commands(argv: list[str], secret: str) -> None:
    """Options of engines, and variables that a command sets for a container."""
    assert secret_values(["srv", *argv, "--port", "1"], []) == (secret,)
    assert secret not in " ".join(blank_argv(["srv", *argv]))
    assert "***" in " ".join(blank_argv(["srv", *argv]))


@pytest.mark.parametrize(
    ("command", "secret"),
    [
        ("exec srv --api-key sk-12345", "sk-12345"),
        ("cd /m && srv --api-key='sk-12345' -x", "sk-12345"),
        ("HF_TOKEN=hf_12345 srv", "hf_12345"),
        ("exec sh -c 'srv --hf-token hf_12345'", "hf_12345"),
        ("curl -H 'Authorization: Bearer sk-12345' http://x", "sk-12345"),
    ],
)
def test_secrets_in_the_command_of_a_shell(command: str, secret: str) -> None:
    """One word for us, which the shell splits; beside it nothing else is taken for a secret."""
    argv = ["sh", "-c", command, "--port", "1"]

    assert secret in secret_values(argv, [])
    assert secret not in " ".join(blank_argv(argv))
    assert secret not in blank(f"the server says {secret}", secret_values(argv, []))


@pytest.mark.parametrize("name", ["HF_TOKEN", "MY_KEY", "a_secret", "DB_PASSWORD", "apikey"])
def test_secrets_in_the_environment(name: str) -> None:
    """By the variable's name, in any case."""
    assert names_secret(name)
    assert secret_values([], [f"{name}=hunter22", "PATH=/usr/bin", "EMPTY_KEY=", "x"]) == (
        "hunter22",
    )
    assert blank_assignment(f"{name}=hunter22") == f"{name}=***"


def test_several_keys_in_one_text() -> None:
    """Each alone is a secret too, and the longest goes first."""
    secrets = secret_values(["--api-key", "sk-1111,sk-11112"], [])

    assert secrets == ("sk-1111,sk-11112", "sk-11112", "sk-1111")
    assert blank("a sk-11112 b sk-1111 c", secrets) == "a *** b *** c"
    assert blank("a sk-11112 b", reversed(secrets)) == "a *** b"


@pytest.mark.parametrize(
    "entry", ["TOKENIZERS_PARALLELISM=false", "MAX_TOKENS=4096", "A_KEY=x1", "A_TOKEN=auto"]
)
def test_values_that_tell_nothing(entry: str) -> None:
    """Each `false` in the logs would be blanked for them. Beside their name they are blanked."""
    assert secret_values([], [entry]) == ()
    assert blank_assignment(entry).endswith("=***")


def test_what_is_no_secret() -> None:
    """Files of keys, numbers of tokens, other options."""
    argv = ["srv", "--api-key-file", "/k", "--max-tokens", "10000000", "--override-kv", "a=b", "-k"]

    assert secret_values(argv, ["A=bcdef"]) == ()
    assert blank_argv(argv) == argv
    assert blank_assignment("A=b") == "A=b"
    assert blank_assignment("A_KEY=") == "A_KEY="


def test_options_at_the_end() -> None:
    """Without a value there is nothing to blank; a secret isn't taken for an option."""
    assert secret_values(["--api-key"], []) == ()
    assert blank_argv(["--api-key", "--api-key", "x"]) == ["--api-key", "***", "x"]
    assert blank_argv(["--api-key"]) == ["--api-key"]


@pytest.mark.parametrize(
    ("text", "blanked"),
    [
        ("srv --api-key abc -x", "srv --api-key *** -x"),
        ("srv --api-key=abc", "srv --api-key=***"),
        ("srv --api-key 'a b'\n  -x", "srv --api-key ***\n  -x"),
        ('srv\n  --hf-token  "a b" -x', "srv\n  --hf-token  *** -x"),
        ("srv --api-key-file abc", "srv --api-key-file abc"),
        ("srv x--api-key abc", "srv x--api-key abc"),
    ],
)
def test_commands_as_text(text: str, blanked: str) -> None:
    """Lines and spaces stay as they are."""
    assert blank_command(text) == blanked


def test_nothing_is_no_secret() -> None:
    """An empty one would blank every gap."""
    assert blank("abc", ["", "b"]) == "a***c"
    assert not is_telling("")
    assert is_telling("123456789")


@pytest.mark.parametrize(
    ("argv", "env", "key"),
    [
        (["--api-key", "k1,k2"], {"LLAMA_API_KEY": "other"}, "k1"),
        (["--api-key=k1"], {}, "k1"),
        ([], {"LLAMA_API_KEY": "k1"}, "k1"),
        ([], {"VLLM_API_KEY": "k1"}, "k1"),
        (["sh", "-c", "exec srv --api-key k1"], {}, "k1"),
        (["--admin-api-key", "k1", "--hf-token", "t"], {"OPENAI_API_KEY": "k2"}, ""),
        (["--api-key"], {}, ""),
    ],
)
def test_the_key_that_a_server_asks_for(argv: list[str], env: dict[str, str], key: str) -> None:
    """The first of those in its command, else in a variable that it reads."""
    assert server_key(argv, env) == key


def test_free_form_data_is_judged_by_its_keys() -> None:
    """Word by word, at any depth; numbers and lists of words aren't secrets."""
    data = {
        "apiKey": "one",
        "nested": [{"HF_TOKEN": "two", "client-secret": "three"}, {"password": {"is": "no"}}],
        "tokenizer": "llama",
        "keywords": "a, b",
        "max_tokens": 4096,
        "token": 7,
        "keys": ["x"],
    }
    assert list(secrets_within(data)) == ["one", "two", "three"]
    assert blank_within(data) == {
        **data,
        "apiKey": "***",
        "nested": [{"HF_TOKEN": "***", "client-secret": "***"}, {"password": {"is": "no"}}],
    }
