"""What was said of one model, so that it isn't said again for each of its processes."""

from __future__ import annotations

import logging
import re
from typing import Final

logger = logging.getLogger(__name__)

_FIGURES: Final = re.compile(r"\d[\d.,]*")


class Sayings:
    """Logs what holds for a model from one process to the next, when it is news."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._last: dict[str, str] = {}

    def say(self, topic: str, text: str) -> None:
        """Log `text`; at debug where the last one on `topic` was the same but for its figures."""
        gist = _FIGURES.sub("#", text)
        is_news = self._last.get(topic) != gist
        self._last[topic] = gist
        logger.log(logging.INFO if is_news else logging.DEBUG, "model %s: %s", self._model, text)
