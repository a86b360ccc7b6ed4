"""The proxy that a run starts for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.bench.own import own_proxy


@pytest.mark.e2e
def test_files_beside_it_arent_taken_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts in any folder, also in one with a script that is called like a module of Python."""
    (tmp_path / "html.py").write_text("raise SystemExit('this is no module')")
    (tmp_path / "config.yaml").write_text("models: {}")
    monkeypatch.chdir(tmp_path)
    with own_proxy(Path("config.yaml")) as proxy:
        assert proxy.views() == {}
