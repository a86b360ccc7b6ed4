"""What is known of a model's conversations."""

from __future__ import annotations

from llmsnap.core.cause import ASKED
from llmsnap.telemetry.contexts import Context, Contexts
from llmsnap.telemetry.record import MoveKind, MoveRecord, RequestRecord
from llmsnap.telemetry.recorder import Recorder
from llmsnap.telemetry.tokens import Tokens


class Stage:
    """Answers and moves of `a`."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.contexts = Contexts(self.recorder)

    def answer(self, tokens: Tokens | None) -> Context:
        """It answers; return what is known then."""
        record = RequestRecord(model="a", path="/", client="::1", arrived_at=0)
        record.tokens = tokens
        self.recorder.request(record)
        return self.contexts.of("a")

    def move(self, kind: MoveKind) -> Context:
        """It comes or goes; return what is known then."""
        move = MoveRecord(model="a", kind=kind, generation=1, cause=ASKED, began_at=0)
        self.recorder.move(move)
        return self.contexts.of("a")


async def test_the_longest_conversation_counts() -> None:
    """Its prompt, from the cache or not, and its answer."""
    stage = Stage()
    assert stage.contexts.of("a") == Context()
    long = Tokens(computed=100, cached=400, generated=50, prompt_s=0.5)
    assert stage.answer(long) == Context(550, 200.0)
    assert stage.answer(Tokens(computed=4, generated=1)) == Context(550, 200.0)
    assert stage.answer(None) == Context(550, 200.0)


async def test_what_a_start_loses_is_forgotten() -> None:
    """A wake loses nothing; how fast it reads is known all the same."""
    stage = Stage()
    stage.answer(Tokens(computed=100, generated=50, prompt_s=0.5))
    assert stage.move("wake") == Context(150, 200.0)
    assert stage.move("start") == Context(None, 200.0)


async def test_short_prompts_say_nothing_of_its_speed() -> None:
    """What takes the time then is the request itself; of longer ones, newer figures count more."""
    stage = Stage()
    assert stage.answer(Tokens(computed=3, prompt_s=1.0)) == Context(3, None)
    assert stage.answer(Tokens(computed=100, prompt_s=1.0)) == Context(100, 100.0)
    assert stage.answer(Tokens(computed=200, prompt_s=1.0)) == Context(200, 130.0)
