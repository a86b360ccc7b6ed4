"""From a configuration to the calls that put a model to sleep."""

from __future__ import annotations

from llmsnap.config.loader import loads
from llmsnap.runtime.plan import check_path
from llmsnap.sleep.recipe import recipes_for
from tests.sleep.sleepy import VLLM, recipe, recipes

GIB = 2**30


def test_a_model_needs_steps_for_both_ways() -> None:
    """One that could only fall asleep has no recipe, nor has one without a word about it."""
    assert list(recipes(VLLM)) == ["m"]
    assert recipes("    sleepEndpoints: [{endpoint: /s}]\n") == {}
    assert recipes("") == {}


def test_what_a_recipe_holds() -> None:
    """Limits come from the global keys, and from each step's own."""
    found = recipe(
        VLLM + "    checkEndpoint: /ready\n    useModelName: n\n    wakeCanary: hi\n",
        above="sleepRequestTimeout: 20\nwakeRequestTimeout: 30\n",
    )

    assert [step.endpoint for step in found.sleep] == ["/sleep?level=1"]
    assert [step.endpoint for step in found.wake] == ["/wake_up", "/reset_prefix_cache"]
    assert [step.timeout_s for step in found.wake] == [5, 5]
    assert (found.sleep_limit_s, found.wake_limit_s) == (20, 30)
    assert (found.is_asleep, found.check_path) == ("/is_sleeping", "/ready")
    assert (found.canary, found.model_name) == ("hi", "n")
    assert recipe(VLLM + "    checkEndpoint: none\n").check_path is None


def test_what_may_stay_in_ram() -> None:
    """All that the model declares on whatever device; nothing is known of one that doesn't."""
    assert recipe(VLLM).tier_bytes == 0
    assert recipe(VLLM + "    vram: 5GiB\n").tier_bytes == 5 * GIB
    assert (
        recipe(VLLM + "    ram: 1GiB\n    vram: {gpu0: 2GiB, gpu1: 3GiB}\n").tier_bytes == 6 * GIB
    )


def test_what_vllms_level_2_drops_isnt_in_ram() -> None:
    """What it had there before still is."""
    level_2 = VLLM.replace("level=1", "level=2") + "    vram: 5GiB\n"

    assert recipe(level_2).tier_bytes == 0
    assert recipe(level_2 + "    ram: 1GiB\n").tier_bytes == GIB


def test_models_that_arent_to_sleep_by_it_have_one_too() -> None:
    """Who chooses a driver looks at the mode, not the recipe."""
    text = "models:\n  m:\n    cmd: srv --port ${PORT}\n    sleepMode: off\n" + VLLM

    assert list(recipes_for(loads(text).config, check_path)) == ["m"]
