"""The process that makes the calls, spoken to by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import msgspec

from llmsnap.sleep.cuda_api import FUNCTIONS, Result
from llmsnap.sleep.cuda_wire import Hello, Order, Reply
from tests.sim.gauge import python_module, with_repository
from tests.sim.world import World


def converse(environ: Mapping[str, str], *orders: Order) -> list[bytes]:
    """Say `orders`, then nothing more; return what was answered."""
    said = b"".join(msgspec.json.encode(order) + b"\n" for order in orders)
    command = python_module("llmsnap.sleep.cuda_helper")
    return subprocess.run(
        command, input=said, stdout=subprocess.PIPE, env=with_repository(environ), check=True
    ).stdout.splitlines()


def test_says_hello_then_answers_each_order(world: World) -> None:
    """A line each; and it ends when stdin does."""
    first, *others = converse(
        world.environ(), Order(id=7, op="state", pid=1), Order(id=8, op="unlock", pid=1)
    )
    hello = msgspec.json.decode(first, type=Hello)
    assert (hello.version, hello.init_name, hello.missing) == (13000, "CUDA_SUCCESS", ())
    replies = [msgspec.json.decode(line, type=Reply) for line in others]
    assert [reply.id for reply in replies] == [7, 8]
    assert {reply.result for reply in replies} == {Result.NOT_INITIALIZED}


def test_says_what_a_driver_lacks(world: World, old_libraries: object) -> None:
    """All that came with 570."""
    (first,) = converse({**world.environ(), "LD_LIBRARY_PATH": str(old_libraries)})
    assert msgspec.json.decode(first, type=Hello).missing == FUNCTIONS


def test_what_a_driver_prints_is_no_answer(world: World) -> None:
    """Its own stdout is stderr."""
    code = (
        "import os; from llmsnap.sleep import cuda_helper\n"
        "cuda_helper.CheckpointApi.version = lambda self: os.write(1, b'noise\\n')\n"
        "cuda_helper.main()"
    )
    environ = with_repository(world.environ())
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environ)
    assert msgspec.json.decode(done.stdout, type=Hello).version == 6
    assert b"noise" in done.stderr
