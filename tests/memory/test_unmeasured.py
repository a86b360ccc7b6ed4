"""GPUs that can't be measured, by the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.memory.unmeasured import unmeasured_gpu

GIB = 1024**3


@pytest.mark.parametrize(
    ("file", "size", "name"),
    [
        ("device/mem_info_vram_total", 16 * GIB, "AMD's GPU (card1)"),
        ("device/mem_info_vram_total", GIB // 2, ""),
        ("lmem_total_bytes", 8 * GIB, "Intel's GPU (card1)"),
    ],
    ids=["amd", "beside the processor", "intel"],
)
def test_cards_with_memory_of_their_own(tmp_path: Path, file: str, size: int, name: str) -> None:
    """A chip that borrows its memory of RAM is none."""
    path = tmp_path / "sys" / "class" / "drm" / "card1" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{size}\n")
    assert unmeasured_gpu(nvidia_is_read=False, root=tmp_path) == name


def test_nvidias_count_only_where_they_are_not_read(tmp_path: Path) -> None:
    """There is a driver, but NVML doesn't tell."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert unmeasured_gpu(nvidia_is_read=False, root=tmp_path) == "NVIDIA's GPU"
    assert unmeasured_gpu(nvidia_is_read=True, root=tmp_path) == ""


def test_there_need_be_no_gpu(tmp_path: Path) -> None:
    """Then RAM is what models live in."""
    assert unmeasured_gpu(nvidia_is_read=False, root=tmp_path) == ""
