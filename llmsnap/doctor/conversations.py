"""What in the commands of models is in the way of conversations that are to come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from llmsnap.config.argv import llama_words, split_command
from llmsnap.config.engine import keeps_sessions
from llmsnap.config.memory import HOST
from llmsnap.config.quantities import size_text
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.doctor.finding import Finding, Status
from llmsnap.errors import ModelFileError
from llmsnap.memory.gguf import Estimate, estimate_for
from llmsnap.sessions.pool import empties_idle, slot_count

_SIMILARITY: Final = frozenset({"-sps", "--slot-prompt-similarity"})
_MUCH: Final = 0.5


def conversations(config: Config, environ: Mapping[str, str]) -> list[Finding]:
    """Return a line for all that speaks against saving, of models of which conversations are."""
    return [
        Finding.of_fault(f"model {id_}", Status.WARN, sentence)
        for id_, sentence in advice_on_conversations(config, environ)
    ]


def advice_on_conversations(
    config: Config, environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield ids of models with what could be better. Reads the beginnings of their files."""
    for id_, model in config.models.items():
        if keeps_sessions(model, config.sessions):
            yield from ((id_, sentence) for sentence in _of_one(id_, model, environ))


def _of_one(id_: str, model: ModelConfig, environ: Mapping[str, str]) -> Iterator[str]:
    argv = split_command(model.cmd)
    env = {**environ, **dict(entry.partition("=")[::2] for entry in model.env)}
    try:
        estimate = estimate_for(model, (HOST,), environ)
    except (ModelFileError, OSError):
        estimate = None  # who looks at files says so
    if estimate is not None:
        yield from _of_kind(id_, estimate)
    if empties_idle(argv, env):
        yield (
            "its slots share the context, and llama-server empties those at rest when another one "
            "is used; write -np into the command, or --no-cache-idle-slots"
        )
    if slot_count(argv, env) > 1:
        yield from _of_similarity(argv)


def _of_kind(id_: str, estimate: Estimate) -> Iterator[str]:
    test = f"`llmsnap sessions test {id_}` tells for sure"
    if estimate.swa_full_bytes is not None:
        yield (
            "it is a sliding-window model: restores are useless without --swa-full, which costs "
            f"about {size_text(estimate.swa_full_bytes)}; {test}"
        )
    if estimate.is_recurrent:
        yield (
            "it has recurrent layers: restores are useless for most such models, and no option "
            f"helps; {test}, and `sessions: off` saves the work"
        )


def _of_similarity(argv: Sequence[str]) -> Iterator[str]:
    said = [value for word, value in pairwise([*llama_words(argv), ""]) if word in _SIMILARITY]
    try:
        share = float(said[-1]) if said else None
    except ValueError:
        return  # llama-server says so itself
    if share is not None and share <= 0:
        yield (
            "with --slot-prompt-similarity 0 a request goes to the slot that was used longest ago, "
            "not to the one that holds its conversation; leave the option out"
        )
    elif share is not None and share > _MUCH:
        yield (
            f"with --slot-prompt-similarity {share:g} a conversation that has grown by more than "
            f"{1 - share:.0%} isn't looked for in the slots; leave the option out"
        )
