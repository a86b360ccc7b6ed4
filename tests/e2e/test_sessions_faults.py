"""What goes wrong with saved conversations: nothing good is lost, nothing wrong restored."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from llmsnap.sessions import files
from tests.e2e.conftest import ONE_AT_A_TIME, Configure
from tests.e2e.test_sessions import LONG, SAVED, Talk, logged, say
from tests.helpers.llama import made_gguf, tiny_gguf
from tests.helpers.proxy_process import ProxyProcess, running_proxy

pytestmark = pytest.mark.e2e


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 72 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=72m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("only root may mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Have `folder` refuse to be written within the block, also for root."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def forge(path: Path) -> None:
    """Cut a saved file in a way that only its server finds out."""
    folder = path.parent
    draft = folder / files.temporary_name()
    draft.write_bytes(path.read_bytes()[:-100_000])
    kept = files.promote(folder, draft.name, path.name, draft.stat().st_size)
    with closing(sqlite3.connect(folder / "index.db")) as index:
        index.execute("UPDATE sessions SET size = ?, checksum = ?", (kept.size, kept.checksum))
        index.commit()


def kept(proxy: ProxyProcess) -> list[Path]:
    """The saved files."""
    return sorted((proxy.state_dir / "sessions").glob("*.kv"))


async def saved(proxy: ProxyProcess, model: str = "a", text: str = LONG) -> Talk:
    """Have a conversation that is saved, and its model stopped."""
    talk: Talk = []
    await say(proxy, talk, text, model)
    await proxy.post("/api/models/unload")
    return talk


@pytest.mark.parametrize("damage", ["truncated", "changed", "link", "gone"])
async def test_e12_a_file_that_was_damaged_is_not_restored(
    configure: Configure, tmp_path: Path, damage: str
) -> None:
    """It is set aside, the log says why, and the conversation is read anew."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk = await saved(proxy)
        (path,) = kept(proxy)
        match damage:
            case "truncated":
                os.truncate(path, path.stat().st_size // 2)
            case "changed":
                path.write_bytes(b"x" * path.stat().st_size)
            case "link":
                path.rename(tmp_path / "elsewhere")
                path.symlink_to(tmp_path / "elsewhere")
            case _:
                path.unlink()
        found = await say(proxy, talk, "go on")
        assert found["cache_n"] == 0
        await logged(proxy, "a saved conversation is lost: ")
        await proxy.logs("a saved conversation is lost: ", times=1)
        assert path not in kept(proxy)

        await proxy.post("/api/models/unload")  # what was read anew is saved anew
        assert (await say(proxy, talk, "and on"))["cache_n"] > 1500


async def test_u135_a_file_of_another_model_renamed_into_place_is_not_restored(
    configure: Configure, tmp_path: Path
) -> None:
    """Though its server would take it: the two are of the same shape."""
    async with running_proxy(configure(names="ab"), tmp_path) as proxy:
        talk = await saved(proxy, "a")
        (mine,) = kept(proxy)
        await saved(proxy, "b")
        (other,) = {*kept(proxy)} - {mine}
        other.rename(mine)
        found = await say(proxy, talk, "go on")
        assert found["cache_n"] == 0
        await logged(proxy, "a saved conversation is lost: its content is another")


async def test_e09_another_file_under_the_models_name_is_found_out(
    configure: Configure, tmp_path: Path
) -> None:
    """The engine would restore it, and compute nonsense."""
    model = tmp_path / "model.gguf"
    config = configure(names="ab")
    first, second = (
        line.split("--model ")[1].split()[0] for line in config.splitlines() if "--model " in line
    )
    model.write_bytes(Path(first).read_bytes())
    config = config.replace(first, str(model))
    async with running_proxy(config, tmp_path) as proxy:
        talk = await saved(proxy)
        model.unlink()
        model.write_bytes(Path(second).read_bytes())
        assert (await say(proxy, talk, "go on"))["cache_n"] == 0
        await logged(proxy, "a saved conversation doesn't fit: --model was")


async def test_e09_other_options_are_found_out_before_the_engine_is_asked(
    configure: Configure, tmp_path: Path
) -> None:
    """With the reason, once."""
    config = configure(names="a")
    async with running_proxy(config, tmp_path) as proxy:
        talk = await saved(proxy)
    config = config.replace("--no-warmup", "--no-warmup --rope-freq-scale 1.0")
    async with running_proxy(config, tmp_path) as proxy:
        for text in ("go on", "and on"):
            await say(proxy, talk, text)
        told = "doesn't fit: --rope-freq-scale was not there and is 1.0"
        await logged(proxy, told)
        await proxy.logs(told, times=1)
        assert "restore failed" not in proxy.log


async def test_u125_e11_a_file_that_the_engine_refuses_ends_its_process_before_anything_is_served(
    configure: Configure, tmp_path: Path
) -> None:
    """The request that wanted it is served by the next process, and the file is set aside."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk = await saved(proxy)
        (path,) = kept(proxy)
    forge(path)
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        found = await say(proxy, talk, "go on")
        assert found["cache_n"] == 0
        model = (await proxy.models())["a"]
        assert (model["state"], model["generation"]) == ("ready", 2)
        await logged(proxy, "a restore failed")
        assert path not in kept(proxy)
        await say(proxy, talk, "and on")
        assert (await proxy.models())["a"]["generation"] == 2


async def test_two_proxies_share_a_folder(configure: Configure, tmp_path: Path) -> None:
    """What one has saved the other one restores after its start, and neither sweeps the other's."""
    folder = tmp_path / "shared"
    head = f"{ONE_AT_A_TIME}\nsessions: {{dir: {folder}}}"
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    async with running_proxy(configure(head, names="a"), places[0]) as one:
        talk = await saved(one)
        async with running_proxy(configure(head, names="a"), places[1]) as two:
            assert (await say(two, talk, "go on"))["cache_n"] > 1500
            other = await saved(two, text="other words " * 100)
            await two.stop()
        assert len([*folder.glob("*.kv")]) == 2
        await one.stop(signal.SIGTERM)
    async with running_proxy(configure(head, names="a"), places[0]) as one:
        assert (await say(one, other, "go on"))["cache_n"] > 1000


async def test_two_proxies_go_on_with_one_conversation(
    configure: Configure, tmp_path: Path
) -> None:
    """In turns: each restores what the other one has put in the place of its file."""
    folder = tmp_path / "shared"
    head = f"{ONE_AT_A_TIME}\nsessions: {{dir: {folder}}}"
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    async with running_proxy(configure(head, names="a"), places[0]) as one:
        talk = await saved(one)
        async with running_proxy(configure(head, names="a"), places[1]) as two:
            held = 1500
            for proxy in (two, one, two, one):
                found = await say(proxy, talk, "go on")
                assert found["cache_n"] > held
                held = found["cache_n"] + found["prompt_n"] - 1
                await proxy.post("/api/models/unload")
                await proxy.becomes("a", "stopped")
        assert len([*folder.glob("*.kv")]) == 1


async def test_a_folder_that_cant_be_used_changes_nothing_else(
    configure: Configure, tmp_path: Path
) -> None:
    """One line says so, and servers run without the option."""
    file = tmp_path / "file"
    file.write_text("")
    head = f"{ONE_AT_A_TIME}\nsessions: {{dir: {file}}}"
    async with running_proxy(configure(head, names="a"), tmp_path) as proxy:
        await proxy.chat("a")
        await logged(proxy, "conversations aren't saved")
        await proxy.logs("conversations aren't saved", times=1)
        _, running = await proxy.get("/running")
        assert "--slot-save-path" not in running["running"][0]["cmd"]


async def test_a_full_disk_loses_nothing_that_was_good(
    configure: Configure, tmp_path: Path, tiny_disk: Path
) -> None:
    """The save is given up with a line; the request isn't, and what was saved before is there."""
    head = f"{ONE_AT_A_TIME}\nsessions: {{dir: {tiny_disk / 'sessions'}, budget: 1GiB}}"
    async with running_proxy(configure(head, names="a"), tmp_path) as proxy:
        talk = await saved(proxy)
        (path,) = (tiny_disk / "sessions").glob("*.kv")
        (tiny_disk / "filler").write_bytes(bytes(files.room(tiny_disk).free))
        await say(proxy, [], "other words " * 150)
        await proxy.post("/api/models/unload")
        await logged(proxy, "a conversation isn't saved: ")
        assert [*(tiny_disk / "sessions").glob("*.kv")] == [path]
        assert (await say(proxy, talk, "go on"))["cache_n"] > 1500


async def test_a_disk_that_runs_full_in_the_middle_of_a_save_loses_nothing(
    configure: Configure, tmp_path: Path, tiny_disk: Path
) -> None:
    """What a token takes isn't known before a model's first save, so that it may begin in vain.

    Its model takes 64 KiB a token: 100 MiB for what is asked.
    """
    wide = made_gguf("wide", layers=64, heads=8, kv_heads=8, ff=64)
    folder = tiny_disk / "sessions"
    head = f"{ONE_AT_A_TIME}\nsessions: {{dir: {folder}, budget: 1GiB}}"
    config = configure(head, names="ab")
    config = config.replace(str(tiny_gguf(1)), str(wide))
    async with running_proxy(config, tmp_path) as proxy:
        talk = await saved(proxy, "a")
        (path,) = folder.glob("*.kv")
        before = path.read_bytes()
        await saved(proxy, "b")
        await logged(proxy, "model b: a conversation isn't saved: ")
        await proxy.logs("no space left on device")
        assert path.read_bytes() == before
        assert [*folder.glob("*.part")] == []
        assert (await say(proxy, [], "hi", "b"))["predicted_n"] > 0
        assert (await say(proxy, talk, "go on"))["cache_n"] > 1500


async def test_a_disk_that_is_read_only_for_a_while_loses_nothing(
    configure: Configure, tmp_path: Path, tiny_disk: Path
) -> None:
    """As after an error of the disk: what is there is read, and saving goes on afterwards."""
    folder = tiny_disk / "sessions"
    head = f"{ONE_AT_A_TIME}\nsessions: {{dir: {folder}, budget: 1GiB}}"
    async with running_proxy(configure(head, names="a"), tmp_path) as proxy:
        talk = await saved(proxy)
        with read_only(folder):
            assert (await say(proxy, talk, "go on"))["cache_n"] > 1500
            await proxy.post("/api/models/unload")
            await proxy.becomes("a", "stopped")
            await logged(proxy, "a conversation isn't saved: ")
            await proxy.logs("read-only file system")
            assert (await say(proxy, talk, "and on"))["cache_n"] > 1500
        await proxy.post("/api/models/unload")
        await proxy.becomes("a", "stopped")
        assert (await say(proxy, talk, "and further"))["cache_n"] > 1650


async def test_u135_e20_keys_dont_share_conversations(configure: Configure, tmp_path: Path) -> None:
    """What one key's client has said isn't restored for another one's."""
    head = f"{ONE_AT_A_TIME}\napiKeys: [first-key, second-key]"
    mine = {"Authorization": "Bearer first-key"}
    async with running_proxy(configure(head, names="a"), tmp_path, headers=mine) as proxy:
        talk = await saved(proxy)
        asked = [*talk, {"role": "user", "content": "go on"}]
        body = {"model": "a", "messages": asked, "max_tokens": 8}
        yours = {"Authorization": "Bearer second-key"}
        async with proxy.session.post("/v1/chat/completions", json=body, headers=yours) as answer:
            assert (await answer.json())["timings"]["cache_n"] == 0
        await proxy.post("/api/models/unload")
        assert (await say(proxy, talk, "go on"))["cache_n"] > 1500


async def test_u134_e18_half_an_answer_isnt_saved_as_a_whole_one(
    configure: Configure, tmp_path: Path
) -> None:
    """A client that left; what was saved before stays."""
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        talk = await saved(proxy)
        body = {
            "model": "a",
            "messages": [*talk, {"role": "user", "content": "go on"}],
            "stream": True,
            "max_tokens": 2000,
        }
        async with proxy.session.post("/v1/chat/completions", json=body) as answer:
            await answer.content.readany()
        before = kept(proxy)
        await proxy.post("/api/models/unload")
        assert kept(proxy) == before
        assert (await say(proxy, talk, "go on"))["cache_n"] > 1500
        await logged(proxy, SAVED)
