"""Which values of a model's command and environment are secrets, and how they are blanked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from llmsnap.config.argv import split_command

BLANK: Final = "***"

_OPTION: Final = re.compile(
    r"-{1,2}(?:hft|(?:[a-z0-9]+[-_])*(?:api[-_]key|hf[-_]token|auth[-_]token|access[-_]token|"
    r"secret(?:[-_]key)?|password))",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"(?i:KEY|TOKEN|SECRET|PASSWORD)")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SECRET_WORDS: Final = frozenset({"key", "apikey", "token", "secret", "password"})
_ASSIGNMENT: Final = re.compile(r"(?:-e|--env=)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_IN_TEXT: Final = re.compile(
    rf"(?<!\S)({_OPTION.pattern})([=\s]+)('[^']*'|\"[^\"]*\"|[^\s'\"]+)", re.I
)
_SERVER_KEYS: Final = ("LLAMA_API_KEY", "VLLM_API_KEY")
_BEARER: Final = re.compile(r"(\bbearer\s+)([^\s'\"]+)", re.IGNORECASE)
_SHORTEST: Final = 4
_NO_SECRETS: Final = frozenset({"true", "false", "none", "null", "auto"})
"""`TOKENIZERS_PARALLELISM=false` is no reason to blank each `false` in the logs."""


def secret_values(argv: Sequence[str], env: Sequence[str]) -> tuple[str, ...]:
    """Return the secrets in a command and in `NAME=value` entries, the longest first.

    They are what follows `--api-key`, `--hf-token`, `-hft` and their like, and the values of
    variables whose name holds KEY, TOKEN, SECRET or PASSWORD, also where `argv` sets them, as
    `docker run -e` does, and what follows `Bearer`. Commands within `argv`, as `sh -c` gets one,
    are looked through too. Values too short or too common to be a secret are left out.
    """
    found = set()
    options = (value for _, value in _options(argv))
    assigned = (value for words in _commands(argv) for value in _of_assignments(words))
    bearers = (token for word in argv for _, token in _BEARER.findall(word))
    for value in (*options, *assigned, *bearers, *_of_assignments(env)):
        found |= {value, *value.split(",")}
    return tuple(sorted(filter(is_telling, found), key=lambda value: (-len(value), value)))


def server_key(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the key that a server with this command asks its clients for; empty: none.

    llama-server and vLLM take it as `--api-key`, several with commas between them, or from a
    variable of their own.
    """
    given = [value for option, value in _options(argv) if option == "--api-key"]
    given += [env.get(name, "") for name in _SERVER_KEYS]
    return next(filter(None, given), "").partition(",")[0].strip()


def blank(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with `***` for each of `secrets`."""
    for secret in sorted(secrets, key=len, reverse=True):
        if secret:
            text = text.replace(secret, BLANK)
    return text


def blank_argv(argv: Sequence[str]) -> list[str]:
    """Return `argv` with `***` for its secrets, be they ever so short."""
    blanked = []
    follows = False
    for argument in argv:
        option, equals, _ = argument.partition("=")
        if follows:
            blanked.append(BLANK)
        elif equals and _OPTION.fullmatch(option):
            blanked.append(f"{option}={BLANK}")
        else:
            blanked.append(blank_command(blank_assignment(argument)))
        follows = not follows and _OPTION.fullmatch(argument) is not None
    return blanked


def blank_assignment(entry: str) -> str:
    """Return `NAME=value` with `***` for the value if it is a secret."""
    match = _ASSIGNMENT.fullmatch(entry)
    if match is None or not match[2] or not names_secret(match[1]):
        return entry
    return entry[: match.start(2)] + BLANK


def blank_command(text: str) -> str:
    """Return the command `text` with `***` for what follows options that take a secret."""
    return _BEARER.sub(rf"\1{BLANK}", _IN_TEXT.sub(rf"\1\2{BLANK}", text))


def is_telling(value: str) -> bool:
    """Return whether `value` can be blanked wherever it stands without hiding anything else."""
    if len(value) < _SHORTEST or value.lower() in _NO_SECRETS:
        return False
    return len(value) > 8 or not value.isdecimal()


def names_secret(name: str) -> bool:
    """Return whether a variable of this `name` holds a secret."""
    return _NAME.search(name) is not None


def secrets_within(data: object) -> Iterator[str]:
    """Yield the texts of free-form `data` whose key, word by word, speaks of a secret.

    A `tokenizer`, `keywords` and `max_tokens` don't.
    """
    match data:
        case dict():
            for key, value in data.items():
                if isinstance(value, str) and speaks_of_secret(str(key)):
                    yield value
                else:
                    yield from secrets_within(value)
        case list() | tuple():
            for item in data:
                yield from secrets_within(item)


def blank_within(data: Any) -> Any:
    """Return free-form `data` with `***` for the texts that `secrets_within` yields."""
    match data:
        case dict():
            return {
                key: BLANK
                if isinstance(value, str) and speaks_of_secret(str(key))
                else blank_within(value)
                for key, value in data.items()
            }
        case list() | tuple():
            return [blank_within(item) for item in data]
    return data


def speaks_of_secret(key: str) -> bool:
    """Return whether one of the words of `key` is one for a secret: `apiKey`, `X-Auth-Token`."""
    return not _SECRET_WORDS.isdisjoint(word.lower() for word in _WORD.findall(key))


def _options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options that take a secret, each with its value."""
    for words in _commands(argv):
        for word, follower in zip(words, (*words[1:], ""), strict=False):
            option, equals, value = word.partition("=")
            if _OPTION.fullmatch(option):
                yield option, value if equals else follower


def _commands(argv: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield `argv`, and the commands that are single words of it, as after `sh -c`."""
    yield argv
    for word in argv:
        if (inner := split_command(word)) != [word]:
            yield from _commands(inner)


def _of_assignments(entries: Sequence[str]) -> Iterator[str]:
    for entry in entries:
        match = _ASSIGNMENT.fullmatch(entry)
        if match and names_secret(match[1]):
            yield match[2]
