"""`/api/sessions`: what is saved, and deleting it."""

from __future__ import annotations

from collections.abc import Collection

from llmsnap.config.schema import ModelConfig
from llmsnap.sessions.catalogue import Saved
from llmsnap.sessions.files import Kept
from llmsnap.web.sessions import SessionRoutes
from tests.web.fleet import NoSessions, config_of, front_of
from tests.web.serving import serving


def saved(name: str, model: str, used: float) -> Saved:
    """A conversation of 1,000 tokens."""
    return Saved(
        name=name,
        model=model,
        facts={},
        engine="",
        scope="",
        session="",
        marks=(b"1" * 16, b"2" * 16),
        length=10,
        tokens=1000,
        prompt_tokens=900,
        kept=Kept(5000, "x"),
        made=0.0,
        used=used,
    )


class KeepsThree(NoSessions):
    """Stands in for those who keep them."""

    fault = ""

    def __init__(self) -> None:
        self.entries = [saved("aa1", "a", 1.0), saved("aa2", "a", 2.0), saved("bb1", "b", 3.0)]

    def saved(self) -> list[Saved]:
        """Those that are left."""
        return self.entries

    def refusals(self) -> dict[str, str]:
        """One model."""
        return {"c": "restores are useless"}

    async def forget(self, names: Collection[str]) -> None:
        """Drop some."""
        self.entries = [entry for entry in self.entries if entry.name not in names]


async def test_sessions_are_listed_and_deleted() -> None:
    """All, those of a model, or one by what its id begins with."""
    keeps = KeepsThree()
    config = config_of("a", "b")
    front = front_of(config, more=SessionRoutes(config, keeps).routes())
    async with serving(front) as site:
        answer = (await site.ask("/api/sessions")).json
        assert [entry["id"] for entry in answer["sessions"]] == ["bb1", "aa2", "aa1"]
        assert answer["sessions"][0] == {
            "id": "bb1",
            "model": "b",
            "tokens": 1000,
            "messages": 2,
            "bytes": 5000,
            "made": "1970-01-01T00:00:00+00:00",
            "used": "1970-01-01T00:00:03+00:00",
        }
        assert (answer["bytes"], answer["refusals"]) == (15_000, {"c": "restores are useless"})
        assert len((await site.ask("/api/sessions?model=a")).json["sessions"]) == 2

        assert (await site.ask("/api/sessions/aa", method="DELETE")).status == 400
        assert (await site.ask("/api/sessions/zz", method="DELETE")).status == 404
        assert (await site.ask("/api/sessions/aa1", method="DELETE")).json == {"deleted": 1}
        assert (await site.ask("/api/sessions?model=a", method="DELETE")).json == {"deleted": 1}
        assert (await site.ask("/api/sessions", method="DELETE")).json == {"deleted": 1}
        assert keeps.entries == []


async def test_a_test_says_what_restores_are_worth() -> None:
    """The model is known by its aliases, too."""
    config = config_of(a=ModelConfig(cmd="serve a", aliases=("b",)))
    front = front_of(config, more=SessionRoutes(config, NoSessions()).routes())
    async with serving(front) as site:
        answer = (await site.ask("/api/sessions/test/b", method="POST")).json
        assert (answer["model"], answer["verdict"], answer["cached"]) == ("a", "used", 600)
        assert (await site.ask("/api/sessions/test/x", method="POST")).status == 404
