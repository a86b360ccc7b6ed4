"""Whether restores are worth anything: only the next answer tells.

On sliding-window and hybrid models the server may say "restored" and read everything again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from llmsnap.sessions.catalogue import Saved, Verdict
from llmsnap.sessions.identity import Identity, digest_of
from llmsnap.sessions.outcome import Outcome, Tell
from llmsnap.sessions.trial import Found
from llmsnap.sessions.turns import Restore, Turn
from llmsnap.sessions.vault import Vault

logger = logging.getLogger(__name__)

_LEAST_SHARE: Final = 4
"""One part in so many of what was restored must be found in the cache."""
_BRANCH_SHARE: Final = 2
"""The same where only a part of it is wanted, of which one can but guess how many tokens it has."""
_NOTHING_SHARE: Final = 20
"""Less than one part in so many of a guess is nothing, however bad the guess."""
_PROVEN_STRIKES: Final = 3
"""So many useless ones in a row count where others were of use: a template may have changed."""
_DEADLY_STRIKES: Final = 2
"""So often in a row a server must have ended over an order: once may be chance."""
_GOOD_FOR_S: Final = 7 * 86400.0
"""After so long a refusal is put to the test again."""
_MOST_NEWS: Final = 1000


class Proofs:
    """Judges the restores of one model, and remembers."""

    def __init__(self, model: str, vault: Vault, tell: Tell, now: Callable[[], float]) -> None:
        self._model = model
        self._vault = vault
        self._tell = tell
        self._now = now
        self._told: set[tuple[str, str]] = set()

    def refusal_of(self, who: Identity) -> str:
        """Return why nothing is saved for `who`; empty: it is."""
        deadly, verdict = self._valid(_orders(who)), self._valid(who.key)
        reason = verdict.reason if verdict is not None and verdict.word != "used" else ""
        return reason or (deadly.reason if deadly is not None else "")

    def uselessness_of(self, who: Identity) -> str:
        """Return why what is saved of `who` is worth nothing; empty: it is worth something."""
        verdict = self._valid(who.key)
        return verdict.reason if verdict is not None and verdict.word == "useless" else ""

    def branch_refusal_of(self, who: Identity) -> str:
        """Return why nothing is restored for what parts from a saved conversation; empty: it is."""
        verdict = self._valid(_branches(who))
        return verdict.reason if verdict is not None and verdict.word == "useless" else ""

    def is_settled(self, who: Identity) -> bool:
        """Whether it is known what restores of `who` are worth."""
        return self._valid(who.key) is not None

    def tried(self, who: Identity, found: Found) -> str:
        """Take in what a self-test has found; return why nothing is saved for `who`."""
        if found.word is None:
            logger.info("model %s: a self-test tells nothing: %s", self._model, found.reason)
            return self.refusal_of(who)
        reason = "" if found.word == "used" else found.reason
        self._vault.catalogue.judge(who.key, Verdict(found.word, 0, reason, self._now()))
        if reason:
            self._say_useless(reason)
        else:
            logger.info("model %s: restores are of use: %s", self._model, found.reason)
        return reason

    def survived(self, who: Identity) -> None:
        """Take in that the server did as it was told."""
        if self._valid(_orders(who)) is not None:
            self._vault.catalogue.judge(_orders(who), Verdict("used", 0, "", self._now()))

    def died(self, who: Identity, order: str) -> str:
        """Take in that the server ended over an `order`; return why it gets no more of them."""
        before = self._valid(_orders(who))
        strikes = (before.strikes if before is not None else 0) + 1
        reason = f"its server has ended while it was to {order}, {strikes} times in a row"
        told = reason if strikes >= _DEADLY_STRIKES else ""
        self._vault.catalogue.judge(_orders(who), Verdict("deadly", strikes, told, self._now()))
        if told:
            logger.warning(
                "model %s: its conversations aren't saved for a week: %s", self._model, reason
            )
        return told

    def pair_refusal(self, who: Identity, saved: Saved) -> str:
        """Return why `saved`, of another build, isn't tried; empty: it is."""
        if saved.engine == who.engine:
            return ""
        verdict = self._valid(_pair(who, saved))
        return verdict.reason if verdict is not None and verdict.word == "refused" else ""

    def refused(self, who: Identity, saved: Saved, reason: str) -> None:
        """Take in that the server didn't take `saved`."""
        if saved.engine != who.engine:
            told = f"another build has saved it, whose files this one refuses ({reason})"
            self._vault.catalogue.judge(_pair(who, saved), Verdict("refused", 1, told, self._now()))

    def is_news(self, saved: Saved, reason: str) -> bool:
        """Whether nobody has been told that yet."""
        if len(self._told) > _MOST_NEWS:
            self._told.clear()
        news = (saved.name, reason)
        is_news = news not in self._told
        self._told.add(news)
        return is_news

    def prove(self, turn: Turn, restore: Restore, who: Identity) -> str:
        """Judge `restore` by the answer of `turn`; return why there are to be no more of them."""
        tokens = turn.record.tokens
        cached = tokens.cached if tokens is not None else None
        if cached is None:
            return ""
        share = _LEAST_SHARE if restore.is_whole else _BRANCH_SHARE
        if cached * share >= restore.expected:
            self._tell(Outcome(self._model, "restore", "used", restore.saved.kept.size))
            for key in (who.key,) if restore.is_whole else (who.key, _branches(who)):
                self._praise(key)
            return ""
        if not turn.is_alone:
            return ""  # another request may have taken the slot
        if not restore.is_whole:
            if turn.is_placed and cached * _NOTHING_SHARE < restore.expected:
                self._prove_branch(restore, cached, who)
            return ""
        self._tell(Outcome(self._model, "restore", "useless"))
        reason = (
            f"restores are useless: of {restore.expected} tokens {cached} were found in the cache"
        )
        if not self._strike(who.key, reason):
            return ""
        self._say_useless(reason)
        return reason

    def _prove_branch(self, restore: Restore, cached: int, who: Identity) -> None:
        """Take in that nothing was in the cache for what parts from a saved conversation.

        A sliding window may be behind that, and what goes on from there be served all the same.
        """
        self._tell(Outcome(self._model, "restore", "useless"))
        reason = (
            "restores are useless for what parts from a saved conversation: of about "
            f"{restore.expected} tokens {cached} were found in the cache"
        )
        if self._strike(_branches(who), reason):
            logger.warning(
                "model %s: %s; for a week only what goes on from one is restored. A sliding-window "
                "model may need --swa-full in its command",
                *(self._model, reason),
            )

    def _praise(self, key: str) -> None:
        before = self._valid(key)
        if before is None or before.word != "used" or before.strikes:
            self._vault.catalogue.judge(key, Verdict("used", 0, "", self._now()))

    def _strike(self, key: str, reason: str) -> bool:
        """Count a useless restore; say whether there are to be no more of them."""
        before = self._valid(key)
        strikes = (before.strikes if before is not None else 0) + 1
        is_over = before is None or before.word != "used" or strikes >= _PROVEN_STRIKES
        verdict = Verdict("useless", strikes, reason, self._now())
        if not is_over:
            verdict = Verdict("used", strikes, "", self._now())
        self._vault.catalogue.judge(key, verdict)
        return is_over

    def _say_useless(self, reason: str) -> None:
        logger.warning(
            "model %s: %s; its conversations aren't saved for a week. A sliding-window model may "
            "need --swa-full in its command; for hybrid ones no way is known",
            *(self._model, reason),
        )

    def _valid(self, key: str) -> Verdict | None:
        verdict = self._vault.catalogue.verdict(key)
        if verdict is None or verdict.at < self._now() - _GOOD_FOR_S:
            return None
        return verdict


def _branches(who: Identity) -> str:
    return digest_of(who.facts, who.engine, "branches")


def _orders(who: Identity) -> str:
    return digest_of(who.facts, who.engine, "orders")


def _pair(who: Identity, saved: Saved) -> str:
    return digest_of(who.facts, saved.engine, who.engine)
