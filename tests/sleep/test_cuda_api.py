"""Names for what the driver answers, and the one struct that it is handed."""

from __future__ import annotations

import ctypes

import pytest

from llmsnap.sleep.cuda_api import LockArgs, result_name, state_name


def test_the_lock_arguments_have_the_size_of_every_version() -> None:
    """64 bytes, the time limit first."""
    assert ctypes.sizeof(LockArgs) == 64
    assert bytes(LockArgs(timeout_ms=7))[:4] == b"\x07\0\0\0"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "CUDA_SUCCESS"),
        (2, "CUDA_ERROR_OUT_OF_MEMORY"),
        (304, "CUDA_ERROR_OPERATING_SYSTEM"),
        (4711, "CUDA result 4711"),
    ],
)
def test_results_have_names(code: int, name: str) -> None:
    """The header's, also for codes that aren't known."""
    assert result_name(code) == name


@pytest.mark.parametrize(("state", "name"), [(2, "checkpointed"), (9, "in state 9")])
def test_states_have_words(state: int, name: str) -> None:
    """Also states that come with a later driver."""
    assert state_name(state) == name
