"""What a file has another effect here than with llama-swap: for `check`, a sentence each.

What its writer has decided by a key of ours isn't told, and to who has written some, nothing of
requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from llmsnap.config.schema import Config
from llmsnap.config.sections import DEFAULT_GROUP, Timeouts
from llmsnap.config.yamlnodes import MapNode

_LONGEST_IDLE_S: Final = 4


def differences(config: Config, root: MapNode) -> tuple[str, ...]:
    """Return the sentences, each behind the key that it is about."""
    found = (*_together(config, root), *_of_models(config, root), *_of_the_file(config, root))
    return tuple(f"{path}: {text}" for path, text in found)


def _together(config: Config, root: MapNode) -> Iterator[tuple[str, str]]:
    """Yield what is different about models beside each other."""
    if root.get("memory") is None and len(config.models) > 1:
        if config.matrix.sets or config.groups.keys() - {DEFAULT_GROUP}:
            text = "counted besides what groups and matrix allow, but with `memory: {mode: off}`"
            yield "memory", text
        else:
            yield "memory", "as many as fit are up, not one at a time as with `memory: {mode: off}`"
    if root.get("sleep") is None and any(m.sleep_mode == "auto" for m in config.models.values()):
        text = "models that can sleep aren't stopped for others, but with `sleep: {mode: off}`"
        yield "sleep", text
    if len(config.matrix.sets) > 1:
        yield "matrix.sets", "of two that cost the same the earlier in the file wins, not by name"
    if config.routing.scheduler.settings.fifo.priority:
        path = "routing.scheduler.settings.fifo.priority"
        yield path, "5 seconds of head start a step, so that the others get their turn, too"


def _of_models(config: Config, root: MapNode) -> Iterator[tuple[str, str]]:
    """Yield what is different about single models, once for all of them."""
    models = config.models.values()
    if any(model.concurrency_limit == 0 for model in models):
        yield "models.*.concurrencyLimit", "unset there is no limit; llama-swap has one of 10"
    if any(model.send_loading_state for model in models):
        yield (
            "sendLoadingState",
            "tells what the model does, in chunks that strict clients take",
        )
    default = Timeouts()
    if any(model.timeouts.expect_continue != default.expect_continue for model in models):
        yield "models.*.timeouts.expectContinue", "without effect: no `Expect` is sent to a server"
    if any(_LONGEST_IDLE_S < m.timeouts.idle_conn != default.idle_conn for m in models):
        yield "models.*.timeouts.idleConn", "4 seconds at the most: llama-server closes its own"
    if root.get("healthCheckTimeout") is not None and config.models:
        text = "isn't what a server has to end in a swap; `unloadTimeout` is"
        yield "healthCheckTimeout", text


def _of_the_file(config: Config, root: MapNode) -> Iterator[tuple[str, str]]:
    """Yield what is different about the rest."""
    if config.models and root.get("memory") is None and root.get("sleep") is None:
        yield (
            "GET /props?model=…",
            "loads nothing without `autoload=true`: it says what was said last",
        )
    if any(peer.timeouts.response_header == 0 for peer in config.peers.values()):
        yield "peers.*.timeouts.responseHeader", "unset there is no limit; llama-swap has 60 s"
    if config.api_keys:
        yield "apiKeys", "the client's key goes no further; a server gets its own"
    if config.hooks.on_startup.preload:
        yield "hooks.on_startup.preload", "loads the models without sending them a request"
    if config.log_requests:
        yield "logRequests", "without effect: requests are always logged"
