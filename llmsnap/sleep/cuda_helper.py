"""The process that makes the driver calls: they may hang or crash, and then only this one does.

    python -m llmsnap.sleep.cuda_helper

It says hello, then answers one order a line until stdin ends. It lives long, because the first
call of a process into the driver takes up to seconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Final, TextIO

import msgspec

from llmsnap.sleep.cuda_api import CheckpointApi, load
from llmsnap.sleep.cuda_wire import Hello, Order, Reply

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Serve orders until there are no more."""
    _die_with_parent()
    answers = _take_stdout()
    try:
        api = CheckpointApi(load())
    except OSError as error:
        _say(answers, Hello(fault=str(error)))
        return
    _say(answers, _greeting(api))
    orders = msgspec.json.Decoder(Order)
    for line in sys.stdin:
        _say(answers, _carry_out(api, orders.decode(line)))


def _greeting(api: CheckpointApi) -> Hello:
    begun = time.perf_counter()
    result = api.init()
    return Hello(
        missing=api.missing,
        version=api.version(),
        init=result,
        init_name=api.name(result),
        init_s=time.perf_counter() - begun,
    )


def _carry_out(api: CheckpointApi, order: Order) -> Reply:
    state: int | None = None
    begun = time.perf_counter()
    match order.op:
        case "state":
            result, state = api.state(order.pid)
        case "lock":
            result = api.lock(order.pid, order.timeout_ms)
        case "checkpoint":
            result = api.checkpoint(order.pid)
        case "restore":
            result = api.restore(order.pid)
        case "unlock":
            result = api.unlock(order.pid)
    seconds = time.perf_counter() - begun
    return Reply(id=order.id, result=result, name=api.name(result), seconds=seconds, state=state)


def _take_stdout() -> TextIO:
    """Keep stdout for answers alone: what the driver prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, words: Hello | Reply) -> None:
    answers.write(msgspec.json.encode(words).decode() + "\n")
    answers.flush()


def _die_with_parent() -> None:
    """End with the proxy, however that ends, and not before: signals to the group are for it."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    # A process inside a call that hangs doesn't see stdin end.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


if __name__ == "__main__":
    main()
