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
        "ggml_aligned_malloc: insufficient memory (attempted to allocate 3906.50 MB)",
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv "
        "cache",
        "ggml_vulkan: Device memory allocation of size 369827840 failed.",
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfHostMemory",
        "ggml_metal_synchronize: error: command buffer 0 failed with status 5\n"
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 98988.40 MiB on device 0: "
        "hipMalloc failed: out of memory",
        "ROCm error: out of memory\n  current device: 0, in function alloc at ggml-cuda.cu:442",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
        "CUDA error: the resource allocation failed: cudaMallocManaged failed: no memory",
        "The program was built for 1 devices: Native API returns: 40 (UR_RESULT_ERROR_OUT_OF_"
        "RESOURCES)",
        "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
        "ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine.",
        "ValueError: Free memory on device (3.22/4.0 GiB) on startup is less than desired GPU "
        "memory utilization (0.9, 3.6 GiB).",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "memory allocation of 68719476736 bytes failed",
        "OSError: [Errno 12] Cannot allocate memory",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array",
        "error loading model: unable to allocate backend buffer",
        "fatal error: runtime: out of memory",
    ],
)
def test_what_engines_print_when_memory_is_out(output: str) -> None:
    """The texts of llama.cpp, PyTorch, Vulkan, Metal and C++."""
    assert ran_out_of_memory(1, f"loading\n{output}\n")


@pytest.mark.parametrize("code", [-9, 137])
@pytest.mark.parametrize(("kills", "ran_out"), [(None, True), (1, True), (0, False)])
def test_killed_means_out_of_memory(code: int, kills: int | None, ran_out: bool) -> None:
    """Unless the kernel says that it killed nobody: then somebody else did."""
    assert ran_out_of_memory(code, "", kernel_kills=kills) is ran_out


def test_kills_of_the_kernel_are_no_matter_to_who_ended_otherwise() -> None:
    """Another process on this machine was killed while this one had a bad flag."""
    assert not ran_out_of_memory(1, "error: unknown argument: --ctx-sise", kernel_kills=1)


@pytest.mark.parametrize(
    "output",
    [
        "error: unknown argument: --ctx-sise",
        "error loading model: failed to open model.gguf",
        "llama_kv_cache: size = 512.00 MiB",
        "CPU memory allocated: 3 GiB",
        "ggml_cuda_host_malloc: failed to allocate 1900.00 MiB of pinned memory: invalid argument",
        "ggml_vulkan: Failed to allocate pinned memory.",
        "will leave 24065 >= 1024 MiB of system memory, no changes needed",
        "",
    ],
)
def test_other_failures_are_something_else(output: str) -> None:
    """A wrong flag isn't tried a second time."""
    assert not ran_out_of_memory(1, output)
