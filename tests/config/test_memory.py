"""Declared memory, and pinned models."""

from __future__ import annotations

import pytest

from llmsnap.config.memory import declared_need, visible_gpus
from llmsnap.config.schema import ModelConfig
from tests.config.reading import loaded, read, refusal

GIB = 2**30
ONE_GPU = ("host", "gpu0")
TWO_GPUS = ("host", "gpu0", "gpu1")


@pytest.mark.parametrize(
    ("model", "devices", "need"),
    [
        (ModelConfig(), ONE_GPU, None),
        (ModelConfig(ram_bytes=5), ONE_GPU, {"host": 5}),
        (ModelConfig(vram=5), ONE_GPU, {"gpu0": 5}),
        (ModelConfig(vram=5), (), {"gpu0": 5}),
        (ModelConfig(vram=5), ("host", "gpu3"), {"gpu3": 5}),
        (ModelConfig(vram=5, ram_bytes=6), ONE_GPU, {"gpu0": 5, "host": 6}),
        (ModelConfig(vram={"gpu0": 5, "gpu1": 6}), TWO_GPUS, {"gpu0": 5, "gpu1": 6}),
        (ModelConfig(vram=5, env=("CUDA_VISIBLE_DEVICES=1",)), TWO_GPUS, {"gpu1": 5}),
        (ModelConfig(vram=5, env=("A=1", "HIP_VISIBLE_DEVICES= 1 ")), TWO_GPUS, {"gpu1": 5}),
        (ModelConfig(vram=5, env=("CUDA_VISIBLE_DEVICES=GPU-1234",)), ONE_GPU, {"gpu0": 5}),
        (ModelConfig(vram=0), ONE_GPU, {"gpu0": 0}),
    ],
)
def test_declared_need(
    model: ModelConfig, devices: tuple[str, ...], need: dict[str, int] | None
) -> None:
    """A plain `vram` is for the GPU that the environment selects, else for the only one."""
    assert declared_need(model, devices) == need


@pytest.mark.parametrize("env", [(), ("CUDA_VISIBLE_DEVICES=0,1",)])
def test_a_plain_vram_with_several_gpus(env: tuple[str, ...]) -> None:
    """How much on which can't be guessed."""
    with pytest.raises(ValueError, match=r"say how much on which, as in \{gpu0: …, gpu1: …\}"):
        declared_need(ModelConfig(vram=5, env=env), TWO_GPUS if not env else ONE_GPU)


def test_an_unclear_vram_is_a_config_error() -> None:
    """With its place."""
    message = refusal(
        """
        memory: {devices: {gpu0: 1GiB, gpu1: 1GiB}}
        models: {a: {cmd: "z ${PORT}", vram: 1GiB}}
        """
    )

    assert message.startswith("config.yaml:3: models.a.vram: there are several GPUs")


PINNED = """
    memory: {{mode: {mode}, devices: {{host: 3GiB, gpu0: {gpu}}}}}
    models:
      a: {{cmd: "z ${{PORT}}", pinned: true, ram: 1GiB, vram: 2GiB}}
      b: {{cmd: "z ${{PORT}}", pinned: true, ram: 1GiB, vram: 2GiB}}
      c: {{cmd: "z ${{PORT}}", vram: 2GiB}}
    """


def test_pinned_models_that_do_not_fit_together() -> None:
    """They could never both be there, and neither may leave."""
    message = refusal(PINNED.format(mode="auto", gpu="3GiB"))

    assert message == (
        "config.yaml:2: memory.devices.gpu0: the pinned models a, b need 4 GiB of 'gpu0', "
        "which has 3 GiB; raise it, or pin fewer"
    )


def test_pinned_models_that_fit() -> None:
    """Exactly enough is enough, and without books nobody counts."""
    assert read(PINNED.format(mode="auto", gpu="4GiB")).memory.devices["gpu0"] == 4 * GIB
    assert read(PINNED.format(mode="off", gpu="3GiB")).memory.mode == "off"


def test_a_pinned_model_of_unknown_size_gives_a_warning() -> None:
    """It loads alone and never leaves: nobody else would ever be up."""
    text = "{}models: {{a: {{cmd: 'z ${{PORT}}', pinned: true}}}}"

    warnings = loaded(text.format("memory: {devices: {host: 1GiB}}\n")).warnings
    assert len(warnings) == 1
    assert warnings[0].startswith("config.yaml:2: models.a.pinned: how much it needs isn't known")
    assert loaded(text.format("")).warnings == ()


def test_what_can_never_fit_gives_a_warning() -> None:
    """The other models still work."""
    result = loaded(
        """
        memory: {devices: {host: 1GiB, gpu0: 1GiB}}
        models:
          a: {cmd: "z ${PORT}", ram: 2GiB}
          b: {cmd: "z ${PORT}", vram: {gpuO: 1GiB}}
          c: {cmd: "z ${PORT}", vram: {cpu: 1GiB, gpu0: 1GiB}}
        """
    )

    assert result.warnings == (
        "config.yaml:4: models.a.ram: 2 GiB of 'host' can never fit in its 1 GiB; "
        "raise memory.devices, or shrink the model",
        "config.yaml:5: models.b.vram: memory.devices has no 'gpuO'; did you mean 'gpu0'?",
        "config.yaml:6: models.c.vram: memory.devices has no 'cpu'; give it a budget there",
    )


def test_without_budgets_nothing_is_noted() -> None:
    """What a model needs is known, but not what there is."""
    assert read("models: {a: {cmd: 'z ${PORT}', vram: {gpu7: 1TiB}, ram: 1TiB}}").models["a"].vram


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, ("gpu0", "gpu2", "gpu10")),
        ({"CUDA_VISIBLE_DEVICES": "2, 0"}, ("gpu2", "gpu0")),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,2"}, ("gpu0",)),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"HIP_VISIBLE_DEVICES": "1"}, ("gpu1",)),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, ("gpu0", "gpu2", "gpu10")),
    ],
)
def test_which_gpus_a_model_sees(env: dict[str, str], expected: tuple[str, ...]) -> None:
    """In the order of its environment; what isn't a number hides what follows, as in CUDA."""
    assert visible_gpus(env, ("gpu10", "host", "gpu2", "gpu0")) == expected


def test_a_size_without_its_unit_is_noted() -> None:
    """`vram: 9` are 9 bytes; nobody means that, and everything would seem to fit."""
    notes = loaded(
        """
        memory: {devices: {gpu0: 24}, reserve: {host: 512}}
        sleep: {ramBudget: 8}
        models:
          a: {cmd: "z ${PORT}", vram: 9, ram: 1MiB}
          b: {cmd: "z ${PORT}", vram: {gpu0: 9000}}
          c: {cmd: "z ${PORT}", vram: 0}
        """
    ).warnings

    assert [note.partition("; write")[0] for note in notes if "bytes" in note] == [
        "config.yaml:2: memory.devices.gpu0: these are 24 bytes",
        "config.yaml:2: memory.reserve.host: these are 512 bytes",
        "config.yaml:3: sleep.ramBudget: these are 8 bytes",
        "config.yaml:5: models.a.vram: these are 9 bytes",
        "config.yaml:6: models.b.vram.gpu0: these are 9000 bytes",
    ]
    assert any(note.endswith("write the unit too, as in 9GiB or 9MiB") for note in notes)


@pytest.mark.parametrize("name", ["gpu", "GPU0", "cuda0", "ram", "gpu01"])
def test_a_device_that_there_cannot_be_is_noted(name: str) -> None:
    """Else its budget would count for nothing, and silently."""
    notes = loaded(
        f"""
        memory: {{devices: {{{name}: 1GiB, host: 1GiB, gpu10: 1GiB}}, reserve: {{{name}: 1GiB}}}}
        models: {{a: {{cmd: "z ${{PORT}}"}}}}
        """
    ).warnings

    remedy = f"{name!r} isn't a device; there are host, gpu0, gpu1 and so on"
    assert [note for note in notes if "isn't a device" in note] == [
        f"config.yaml:2: memory.{key}.{name}: {remedy}" for key in ("devices", "reserve")
    ]
