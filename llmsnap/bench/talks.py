"""One growing text a server, model and length: what a conversation is to a cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from llmsnap.bench.prose import Prose
from llmsnap.bench.servers import Answer, Server

_USUAL_RATIO: Final = 5.0
"""Characters a token in English, where a server tells nothing."""
_TRIAL_CHARACTERS: Final = 600
_NEXT_CHARACTERS: Final = 60
"""What is said in each turn after the first."""


@dataclass
class Talk:
    """A text that a model goes on with, turn by turn."""

    text: str
    prose: Prose
    turns: int = 0
    """So often the model has gone on with it."""

    def next_prompt(self) -> str:
        """Return all that was said, and something more."""
        self.text += f"\n\n{self.prose.text(_NEXT_CHARACTERS)}"
        return self.text

    def heard(self, answer: Answer) -> None:
        """Take the answer into the text."""
        self.text += answer.text
        self.turns += 1


@dataclass
class Talks:
    """All texts with one server; a model has one in its cache at a time."""

    server: Server
    seed: str
    answer_tokens: int
    _ratios: dict[str, float] = field(default_factory=dict)
    _last: dict[str, Talk] = field(default_factory=dict)
    _open: dict[tuple[str, int], Talk] = field(default_factory=dict)
    _count: int = 0

    def begin(self, model: str, length: int) -> Talk:
        """Return a new text of about `length` tokens, which the model hasn't seen."""
        if model not in self._ratios:
            self._ratios[model] = self._characters_a_token(model)
        self._count += 1
        prose = Prose(f"{self.seed} {model} {length} {self._count}")
        talk = Talk(prose.text(int(length * self._ratios[model])), prose)
        self._open[model, length] = talk
        return talk

    def resume(self, model: str, length: int) -> Talk:
        """Return a text that the model has gone on with once, and has in its cache.

        Always once: so what is asked next is as long with every server and in every state.
        """
        talk = self._open.get((model, length))
        if talk is None or talk.turns != 1 or self._last.get(model) is not talk:
            talk = self.begin(model, length)
            self.ask(model, talk)
        return talk

    def ask(self, model: str, talk: Talk) -> Answer:
        """Have the model go on with the text. Raises NoProxy or Refused."""
        answer = self.server.complete(model, talk.next_prompt(), self.answer_tokens)
        talk.heard(answer)
        self._last[model] = talk
        return answer

    def disturb(self, model: str) -> None:
        """Ask the model something short, so that another one may have to go."""
        self.server.complete(model, "Hello", 1)
        self._last.pop(model, None)

    def _characters_a_token(self, model: str) -> float:
        trial = Prose(f"{self.seed} {model} trial").text(_TRIAL_CHARACTERS)
        tokens = self.server.complete(model, trial, 1).figures.tokens
        prompt = tokens.prompt if tokens else None
        return len(trial) / prompt if prompt else _USUAL_RATIO
