from __future__ import annotations

import pytest

from llmsnap.runtime.oom import ran_out_of_memory


@pytest.mark.parametrize(
    "output",
    [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 0: "
        "cudaMalloc failed: out of memory",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.OutOfMemoryError: HIP out of memory",
        "ggml_vulkan: Device memory allocation failed: ErrorOutOfDeviceMemory",
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "llama_model_load: failed to allocate buffer of size 4096",
        "mmap failed: Cannot allocate memory",
        "hipErrorOutOfMemory",
        "alloc_tensor_range: failed to allocate CUDA0 buffer",
    ],
)
def test_what_engines_print_when_memory_is_out(output: str) -> None:
    """The texts of llama.cpp, PyTorch, Vulkan, Metal and C++."""
    assert ran_out_of_memory(1, f"loading\n{output}\n")


@pytest.mark.parametrize("code", [-9, 137])
def test_killed_means_out_of_memory(code: int) -> None:
    """Nobody of ours killed it, so the kernel did."""
    assert ran_out_of_memory(code, "")


@pytest.mark.parametrize(
    "output",
    [
        "error: unknown argument: --ctx-sise",
        "error loading model: failed to open model.gguf",
        "llama_kv_cache: size = 512.00 MiB",
        "CPU memory allocated: 3 GiB",
        "",
    ],
)
def test_other_failures_are_something_else(output: str) -> None:
    """A wrong flag isn't tried a second time."""
    assert not ran_out_of_memory(1, output)
