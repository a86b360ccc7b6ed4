"""Estimates out of a model file's header and a command."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from llmsnap.config.schema import ModelConfig
from llmsnap.errors import ModelFileError
from llmsnap.memory.gguf import Estimate, estimate_for
from tests.memory.gguf_files import blocks, llama, write_gguf

MIB = 1024**2
MATRIX = 256 * 256 * 2
"""One of the matrices in these models, in half precision."""
NORM = 256 * 4
TWO_GPUS = ("host", "gpu0", "gpu1")


def estimate(
    path: Path,
    *flags: str,
    devices: Collection[str] = ("host",),
    env: Mapping[str, str] | None = None,
    repacked: Collection[str] = (),
) -> Estimate:
    """Return what a llama-server with this file and these flags will need."""
    command = shlex.join(["llama-server", "-m", str(path), *flags])
    variables = tuple(f"{name}={value}" for name, value in (env or {}).items())
    model = ModelConfig(cmd=command, env=variables)
    found = estimate_for(model, devices, {}, repacked=repacked)
    assert found is not None
    return found


def weights(found: Estimate) -> dict[str, int]:
    """Return the bytes of weights a device."""
    return {device: parts.weights for device, parts in found.parts.items()}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A model of four layers."""
    return write_gguf(tmp_path / "small.gguf", llama(), blocks(4))


def test_on_the_processor_all_is_in_ram(small: Path) -> None:
    """Weights as large as in the file, a cache for the context, and the process itself."""
    found = estimate(small, "-c", "4096", "-np", "1")

    assert weights(found) == {"host": 10 * MATRIX + 5 * NORM}
    assert found.parts["host"].kv == 4096 * 4 * (128 + 128) * 2
    assert found.need == {"host": found.parts["host"].total}
    assert found.certain == weights(found)
    assert not found.fitted


def test_the_cache_follows_its_types_and_the_slots(small: Path) -> None:
    """Parts of a context are whole cells of 256 tokens, for each slot."""

    def cache(*flags: str) -> int:
        return estimate(small, *flags).parts["host"].kv

    token = 4 * 2 * 128
    assert cache("-c", "512", "-np", "1", "-ctk", "q8_0", "-ctv", "q8_0") == 512 * token * 34 // 32
    assert cache("-c", "1000", "-np", "3") == 3 * 512 * token * 2
    assert cache("-c", "1000") == 1024 * token * 2
    assert cache("-c", "0", "-np", "1") == 8192 * token * 2


def test_windows_make_the_cache_small_unless_it_is_to_be_full(tmp_path: Path) -> None:
    """Window and batch, rounded up; two copies of the window's state for each slot."""
    values = llama(architecture="gemma3", layers=6, attention__sliding_window=512)
    path = write_gguf(tmp_path / "swa.gguf", values)
    token = 2 * 128 * 2

    def cache(*flags: str) -> int:
        return estimate(path, "-c", "8192", "-np", "1", *flags).parts["host"].kv

    assert cache("-ctxcp", "0") == (8192 + 5 * 1024) * token
    assert cache() == (8192 + 5 * 1024 + 2 * 5 * 512) * token
    assert cache("--swa-full") == 6 * 8192 * token


def test_recurrent_layers_have_a_state_for_each_slot(tmp_path: Path) -> None:
    """In full precision, whatever the context."""
    values = llama(architecture="lfm2", heads_kv=[0, 4, 0, 4], shortconv__l_cache=3)
    found = estimate(
        write_gguf(tmp_path / "h.gguf", values), "-c", "256", "-np", "3", "-ctxcp", "0"
    )

    assert found.parts["host"].kv == 3 * (2 * 512 * 4 + 256 * 2 * 256 * 2)
    assert any("recurrent" in note for note in found.notes)


def test_layers_go_to_gpus_from_the_last_one_on(small: Path) -> None:
    """The output counts as one more; embeddings stay on the host."""
    found = estimate(small, "-ngl", "3", "-c", "256", devices=("host", "gpu0"))

    assert weights(found) == {
        "host": 5 * MATRIX + 2 * NORM,
        "gpu0": 5 * MATRIX + 3 * NORM,
    }
    assert found.parts["gpu0"].kv == found.parts["host"].kv
    assert found.parts["gpu0"].overhead > 0


def test_all_layers_go_where_there_is_a_gpu(small: Path) -> None:
    """Unless told otherwise; llama-server takes fewer when they don't fit, so none are sure."""
    found = estimate(small, devices=("host", "gpu0"))

    assert weights(found)["host"] == MATRIX
    assert found.unset == ("-c", "-ngl")
    assert found.certain == {}
    assert estimate(small, "--fit", "off", devices=("host", "gpu0")).certain != {}
    assert estimate(small, "-ngl", "0", devices=("host", "gpu0")).parts.keys() == {"host"}
    assert estimate(small, "-dev", "none", devices=("host", "gpu0")).parts.keys() == {"host"}


@pytest.mark.parametrize(
    ("flags", "env", "expected"),
    [
        ((), {}, {"gpu0", "gpu1"}),
        (("-ts", "0,1"), {}, {"gpu1"}),
        (("-sm", "none", "-mg", "1"), {}, {"gpu1"}),
        (("-dev", "CUDA1"), {}, {"gpu1"}),
        ((), {"CUDA_VISIBLE_DEVICES": "1"}, {"gpu1"}),
        (("-dev", "CUDA0"), {"CUDA_VISIBLE_DEVICES": "1,0"}, {"gpu1"}),
        ((), {"CUDA_VISIBLE_DEVICES": ""}, set()),
        ((), {"CUDA_VISIBLE_DEVICES": "-1"}, set()),
        ((), {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, {"gpu0", "gpu1"}),
        ((), {"LLAMA_ARG_SPLIT_MODE": "none"}, {"gpu0"}),
    ],
)
def test_which_gpus_hold_layers(
    small: Path, flags: tuple[str, ...], env: dict[str, str], expected: set[str]
) -> None:
    """By the model's own environment first, then by its flags."""
    found = estimate(small, "-ngl", "99", *flags, devices=TWO_GPUS, env=env)

    assert found.parts.keys() - {"host"} == expected


def test_a_split_follows_its_proportions(small: Path) -> None:
    """Three of four layers on the first, one and the output on the second."""
    found = estimate(small, "-ngl", "99", "-ts", "3,2", "-c", "256", devices=TWO_GPUS)

    assert found.parts["gpu0"].kv == 3 * found.parts["gpu1"].kv


def test_experts_stay_on_the_host_if_told_so(tmp_path: Path) -> None:
    """By count of layers, all of them, or by pattern."""
    values = llama(expert_count=8, expert_used_count=2, expert_feed_forward_length=64)
    path = write_gguf(tmp_path / "moe.gguf", values, blocks(4, experts=8))

    def on_host(*flags: str) -> int:
        flags = ("-ngl", "99", *flags)
        return weights(estimate(path, *flags, devices=("host", "gpu0")))["host"] - MATRIX

    assert on_host() == 0
    assert on_host("--n-cpu-moe", "3") == 3 * 8 * MATRIX
    assert on_host("--cpu-moe") == 4 * 8 * MATRIX
    assert on_host("-ot", r"blk\.[01]\.ffn_.*_exps=CPU") == 2 * 8 * MATRIX
    assert on_host("-ot", "[=CPU") == 0


def test_tied_embeddings_are_on_the_gpu_once_more(tmp_path: Path) -> None:
    """As output."""
    path = write_gguf(tmp_path / "tied.gguf", llama(), blocks(4, tied=True))

    found = estimate(path, "-ngl", "99", devices=("host", "gpu0"))

    assert weights(found) == {"host": MATRIX, "gpu0": 9 * MATRIX + 5 * NORM}


def test_some_types_are_there_twice_on_a_processor(tmp_path: Path) -> None:
    """Unless they aren't mapped, or aren't to be repacked; never with a GPU."""
    path = write_gguf(tmp_path / "q4.gguf", llama(), blocks(4, kind="Q4_0"))
    matrix = 256 * 256 // 32 * 18
    plain = 10 * matrix + 5 * NORM

    def sizes(*flags: str, devices: Collection[str] = ("host",)) -> tuple[int, int]:
        found = estimate(path, *flags, devices=devices, repacked=["Q4_0"])
        assert found.certain["host"] == weights(found)["host"] - found.saved_by_no_mmap
        return weights(found)["host"], found.saved_by_no_mmap

    mapped = plain - matrix  # the last one in the file isn't mapped
    assert sizes() == (mapped + 9 * matrix, 8 * matrix)
    assert sizes("--no-mmap") == (plain, 0)
    assert sizes("--no-repack") == (plain, 0)
    assert sizes("-ngl", "2", devices=("host", "gpu0")) == (7 * matrix + 3 * NORM, 0)
    assert estimate(path, "-ngl", "99", devices=("host", "gpu0")).saved_by_no_mmap == 0


def test_parts_of_a_split_model_are_added(tmp_path: Path) -> None:
    """The command names the first; a part that lacks is told by name."""
    values = llama()
    for number, tensors in ((1, blocks(2)), (2, blocks(4)[4:])):
        write_gguf(tmp_path / f"m-0000{number}-of-00002.gguf", values, tensors)
    first = tmp_path / "m-00001-of-00002.gguf"

    together = weights(estimate(first))["host"]
    (tmp_path / "m-00002-of-00002.gguf").unlink()

    assert (
        together > weights(estimate(write_gguf(tmp_path / "one.gguf", values, blocks(2))))["host"]
    )
    with pytest.raises(ModelFileError, match=r"m-00002-of-00002\.gguf"):
        estimate(first)


def test_companions_are_added(small: Path, tmp_path: Path) -> None:
    """A model that drafts, an image projector, adapters; only if they are there."""
    alone = estimate(small, "-c", "512").need["host"]
    draft = write_gguf(tmp_path / "draft.gguf", llama(), blocks(4))
    extra = tmp_path / "extra.gguf"
    extra.write_bytes(b"\0" * MIB)

    def more(*flags: str) -> int:
        return estimate(small, "-c", "512", *flags).need["host"] - alone

    assert more("-md", str(draft)) > draft.stat().st_size
    assert more("--mmproj", str(extra)) == 2 * MIB
    assert more("--lora", f"{extra},nowhere") == MIB
    assert more("-md", "nowhere", "--mmproj", "nowhere") == 0


def test_e14_growth_is_told_apart(small: Path) -> None:
    """llama-server keeps up to 8 GiB of conversations unless told otherwise."""
    assert estimate(small).growth == {"host": 8192 * MIB}
    assert estimate(small, "--cache-ram", "0").growth == {}
    assert estimate(small, "--cache-ram", "100").growth == {"host": 100 * MIB}
    unlimited = estimate(small, "--cache-ram", "-1")
    assert any("without a limit" in note for note in unlimited.notes)


def test_no_model_file_no_estimate(tmp_path: Path) -> None:
    """Another engine, a download to come, a folder, a path that is none."""
    for command in ("", "vllm serve m", "llama-server -hf a/b", "llama-server -m nowhere.gguf"):
        assert estimate_for(ModelConfig(cmd=command), ("host",), {}) is None
    for path in (str(tmp_path), "x" * 5000, "a\0b"):
        model = ModelConfig(cmd=shlex.join(["llama-server", "-m", path]))
        assert estimate_for(model, ("host",), {}) is None


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    """With its name."""
    path = tmp_path / "m.gguf"
    path.write_text("not a model")

    with pytest.raises(ModelFileError, match=r"m\.gguf' is no GGUF file"):
        estimate(path)


def test_the_environment_of_the_proxy_is_inherited(small: Path) -> None:
    """A model's own entries win."""
    model = ModelConfig(cmd=f"llama-server -m {small}", env=("LLAMA_ARG_CTX_SIZE=512",))
    environ = {"LLAMA_ARG_CTX_SIZE": "4096", "LLAMA_ARG_N_PARALLEL": "1"}

    found = estimate_for(model, ("host",), environ, repacked=())

    assert found is not None
    assert found.parts["host"].kv == 512 * 4 * 256 * 2


def test_who_knows_the_gpus_better_is_believed(small: Path) -> None:
    """A card may be named by its UUID, which says nothing here."""
    model = ModelConfig(cmd=f"llama-server -m {small}", env=("CUDA_VISIBLE_DEVICES=GPU-8932f937",))

    found = estimate_for(model, TWO_GPUS, {}, gpus=["gpu1"])

    assert found is not None
    assert found.parts.keys() == {"host", "gpu1"}
