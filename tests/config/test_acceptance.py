"""The acceptance rows of configurations, by their numbers: what llama-swap's own loader did.

Those about several files are in `test_acceptance_sources`.
"""

from __future__ import annotations

import pytest

from llmsnap.config.argv import default_cmd_stop, split_command
from llmsnap.config.sections import DEFAULT_GROUP, GroupConfig
from tests.config.reading import loaded, model, read, refusal


def test_c01_one_model_gets_all_defaults() -> None:
    """A model with nothing but a command is complete."""
    config = read("models: {m: {cmd: 'srv --port ${PORT}'}}")
    m = config.models["m"]

    assert split_command(m.cmd) == ["srv", "--port", "5800"]
    assert m.proxy == "http://localhost:5800"
    assert (m.check_endpoint, m.ttl_s, m.unload_timeout_s) == ("/health", 0, 10)
    assert config.groups == {DEFAULT_GROUP: GroupConfig(swap=True, exclusive=True, members=("m",))}
    assert config.health_check_timeout_s == 120


def test_c02_ports_go_by_sorted_id_to_those_who_use_one() -> None:
    """Uppercase sorts before lowercase, and a model without `${PORT}` takes no port."""
    config = read(
        """
        startPort: 9100
        models:
          zed: {cmd: "srv -p ${PORT}"}
          abe: {cmd: "srv -p ${PORT}"}
          mid: {cmd: "srv -p 7000", proxy: "http://127.0.0.1:7000"}
          Bob: {cmd: "srv -p ${PORT}"}
        """
    )

    assert {id_: m.proxy for id_, m in config.models.items()} == {
        "Bob": "http://localhost:9100",
        "abe": "http://localhost:9101",
        "mid": "http://127.0.0.1:7000",
        "zed": "http://localhost:9102",
    }
    assert list(config.models) == ["Bob", "abe", "mid", "zed"]


@pytest.mark.parametrize("proxy", ["", ", proxy: 'http://localhost:${PORT}'"])
def test_c04_a_proxy_with_port_needs_a_cmd_with_port(proxy: str) -> None:
    """It makes no difference whether the proxy is written or comes by default."""
    message = refusal(f"models: {{m: {{cmd: srv{proxy}}}}}")

    assert "models.m.proxy: proxy uses ${PORT} but cmd does not" in message


def test_c05_comment_lines_and_continuations() -> None:
    """Lines that begin with # are gone before macros are looked at; an inner # is text."""
    config = read(
        """
        models:
          m:
            proxy: http://h:1
            cmd: |
              # head ${nope}
              srv --a 1 \\
                --b 2
                # inner
              --c "x # y" --d 'p q'
        """
    )

    assert split_command(config.models["m"].cmd) == [
        "srv", "--a", "1", "--b", "2", "--c", "x # y", "--d", "p q",
    ]  # fmt: skip


def test_c06_quoting() -> None:
    """Quotes and backslashes as in a POSIX shell, without its variables."""
    config = read(
        r"""
        models:
          m:
            proxy: http://h:1
            cmd: 'srv --j "{\"a\": 1}" --s ''$HOME'' a\ b "" C:\x\y'
        """
    )

    assert split_command(config.models["m"].cmd) == [
        "srv", "--j", '{"a": 1}', "--s", "$HOME", "a b", "", "C:xy",
    ]  # fmt: skip


def test_c08_a_models_macro_wins_inside_global_ones() -> None:
    """Overriding a macro changes other global macros that use it, for that model only."""
    config = read(
        """
        macros:
          bin: /opt/a
          full: "${bin}/srv"
        models:
          m: {macros: {bin: /opt/b}, cmd: "${full} --port ${PORT}"}
          n: {cmd: "${full} --port ${PORT}"}
        """
    )

    assert config.models["m"].cmd == "/opt/b/srv --port 5800"
    assert config.models["n"].cmd == "/opt/a/srv --port 5801"


FORWARD = """
    macros:
      a: "${b}"
      b: x
    models:
      m: {cmd: "z ${PORT} %s"}
    """


def test_c09_a_macro_cannot_use_one_below_it() -> None:
    """A forward reference that is used is an error."""
    message = refusal(FORWARD % "${a}")

    assert message.startswith("config.yaml:6: models.m.cmd: unknown macro '${b}'")


def test_c10_a_wrong_macro_that_nobody_uses_is_fine() -> None:
    """A forward reference that isn't used is no error."""
    assert read(FORWARD % "").models["m"].cmd == "z 5800"


@pytest.mark.parametrize("name", ["PORT", "MODEL_ID", "PID"])
def test_c12_reserved_macro_names(name: str) -> None:
    """The built-in macros can't be redefined."""
    assert f"macro name '{name}' is reserved" in refusal(f"macros: {{{name}: 1}}")


def test_c13_reserved_names_are_case_sensitive() -> None:
    """`port` is a name like any other."""
    assert model('{cmd: "z ${port} ${PORT}"}', above="macros: {port: 1}").cmd == "z 1 5800"


def test_c14_macro_names_have_at_most_63_characters() -> None:
    """63 are fine, 64 aren't."""
    assert "maximum of 63 characters" in refusal(f"macros: {{{'a' * 64}: 1}}")
    assert read(f"macros: {{{'a' * 63}: 1}}").macros == {"a" * 63: 1}


@pytest.mark.parametrize("value", ["[1]", "{a: 1}", "null", "2024-05-01"])
def test_c16_macros_are_scalars(value: str) -> None:
    """A list, a mapping, null or a date can't be a macro."""
    assert "macros.a: a macro must be a scalar type" in refusal(f"macros: {{a: {value}}}")


def test_c17_a_whole_value_takes_the_macros_type() -> None:
    """Only a value that is one macro and no more does; `${PORT}` is a number."""
    body = (
        '{cmd: "z ${PORT}", metadata: {n: "${n}", f: "${f}", b: "${b}", s: "c=${n}", '
        'p: "${PORT}", i: "${MODEL_ID}"}}'
    )

    metadata = model(body, above="macros: {n: 4096, f: 1.5, b: true}").metadata

    assert metadata == {"n": 4096, "f": 1.5, "b": True, "s": "c=4096", "p": 5800, "i": "m"}
    assert metadata["b"] is True


def test_c18_unknown_macro_deep_in_metadata() -> None:
    """It is found wherever it stands."""
    message = refusal("models: {m: {cmd: 'z ${PORT}', metadata: {a: {b: ['${zip}']}}}}")

    assert "models.m.metadata.a.b[0]: unknown macro '${zip}'" in message


def test_c20_port_in_cmd_stop_needs_port_in_cmd() -> None:
    """`${PORT}` is only there for a model whose command uses it."""
    message = refusal("models: {m: {cmd: z, proxy: 'http://h:1', cmdStop: 'kill ${PORT}'}}")

    assert "models.m.cmdStop: macro '${PORT}' should have been substituted" in message


def test_c21_pid_stays_in_cmd_stop() -> None:
    """It is known only when the command runs."""
    assert model('{cmd: "z ${PORT}", cmdStop: "kill ${PID}"}').cmd_stop == "kill ${PID}"


def test_c22_pid_is_unknown_elsewhere() -> None:
    """A command can't know its own process."""
    assert "models.m.cmd: unknown macro '${PID}'" in refusal("models: {m: {cmd: 'z ${PID}'}}")


def test_c24_an_alias_means_one_model() -> None:
    """The error names both models."""
    message = refusal(
        """
        models:
          a: {cmd: "z ${PORT}", aliases: [q]}
          b: {cmd: "z ${PORT}", aliases: [q]}
        """
    )

    assert "config.yaml:4: models.b.aliases[0]: duplicate alias 'q'" in message
    assert "model 'a'" in message


def test_c25_an_id_wins_over_an_alias() -> None:
    """An alias that is another model's id loads, has no effect, and gives a warning."""
    result = loaded(
        """
        models:
          a: {cmd: "z ${PORT}", aliases: [b]}
          b: {cmd: "z ${PORT}"}
        """
    )

    assert result.config.names() == {"a": "a", "b": "b"}
    assert "alias 'b' has no effect" in result.warnings[0]


GROUPS = """
    models:
      a: {cmd: "z ${PORT}"}
      b: {cmd: "z ${PORT}"}
      c: {cmd: "z ${PORT}"}
    """


def test_c26_groups_and_their_defaults() -> None:
    """What is in no group is in the automatic one."""
    config = read(
        GROUPS
        + """
    groups:
      g1: {members: [a]}
      g2: {swap: false, exclusive: false, persistent: true, members: [b]}
    """
    )

    assert config.groups == {
        "g1": GroupConfig(swap=True, exclusive=True, persistent=False, members=("a",)),
        "g2": GroupConfig(swap=False, exclusive=False, persistent=True, members=("b",)),
        DEFAULT_GROUP: GroupConfig(swap=True, exclusive=True, persistent=False, members=("c",)),
    }


def test_c28_a_member_twice_in_one_group() -> None:
    """It is an error that names the member."""
    message = refusal(GROUPS + "\n    groups: {g: {members: [a, b, a]}}\n")

    assert "groups.g.members[2]: duplicate member 'a'" in message


AB = "models: {a: {cmd: 'z ${PORT}'}, b: {cmd: 'z ${PORT}'}}\n"


def test_c29_groups_and_matrix_exclude_each_other() -> None:
    """One of them decides."""
    text = AB + "groups: {g: {members: [a]}}\nmatrix: {sets: {s: a}}\n"

    assert refusal(text) == (
        "config.yaml:3: matrix: cannot use both groups and matrix; keep one of them"
    )


@pytest.mark.parametrize(
    ("key", "value"), [("groups", "{g: {members: [a]}}"), ("matrix", "{sets: {s: a}}")]
)
def test_c30_the_older_and_the_newer_place_exclude_each_other(key: str, value: str) -> None:
    """Whoever has both is in the middle of a migration."""
    text = AB + f"{key}: {value}\nrouting: {{router: {{use: group}}}}\n"

    assert refusal(text) == (
        f"config.yaml:2: {key}: {key} and routing.router are both set; migrate to routing.router"
    )


def test_c32_a_matrix_router_needs_a_matrix() -> None:
    """Nothing else would say what goes together."""
    assert refusal(AB + "routing: {router: {use: matrix}}\n") == (
        "config.yaml:2: routing.router.use: use is matrix, but settings.matrix is missing; "
        "write it, or use group"
    )


@pytest.mark.parametrize(
    ("section", "known"), [("router", "group or matrix"), ("scheduler", "fifo")]
)
def test_c33_unknown_routers_and_schedulers(section: str, known: str) -> None:
    """The error says which there are."""
    assert refusal(AB + f"routing: {{{section}: {{use: foo}}}}\n") == (
        f"config.yaml:2: routing.{section}.use: 'foo' isn't possible here; write {known}"
    )


def test_c34_priorities_are_for_models() -> None:
    """One for a name that there isn't would do nothing."""
    text = AB + "routing: {scheduler: {settings: {fifo: {priority: {zz: 1}}}}}\n"

    assert refusal(text) == (
        "config.yaml:2: routing.scheduler.settings.fifo.priority.zz: no model or alias 'zz'; "
        "define it under models"
    )


def test_c36_the_first_port_is_at_least_1() -> None:
    """Port 0 is refused, port 1 is not, nor is the last one."""
    assert "config.yaml:1: startPort: must be at most 65535" in refusal("startPort: 65536")
    assert read("startPort: 65535").start_port == 65535
    assert "config.yaml:1: startPort: must be at least 1, not 0" in refusal("startPort: 0")
    assert read("startPort: 1").start_port == 1


def test_c37_log_to_stdout_is_one_of_four() -> None:
    """The error lists them."""
    message = refusal("logToStdout: stderr")

    assert "'stderr' isn't possible here; write both, none, proxy or upstream" in message


def test_c38_models_inherit_times() -> None:
    """A ttl of 0 is a value, an unloadTimeout of 0 is none."""
    config = read(
        """
        globalTTL: 90
        unloadTimeout: 0
        models:
          a: {cmd: "z ${PORT}"}
          b: {cmd: "z ${PORT}", ttl: 0, unloadTimeout: 3}
          c: {cmd: "z ${PORT}", ttl: 7, unloadTimeout: 0}
        """
    )

    assert [m.ttl_s for m in config.models.values()] == [90, 0, 7]
    assert [m.unload_timeout_s for m in config.models.values()] == [10, 3, 10]


def test_c40_api_keys_have_no_spaces_and_are_not_empty() -> None:
    """The message doesn't show the key."""
    spaces = refusal('apiKeys: ["sekrit key"]')

    assert "config.yaml:1: apiKeys[0]: api key cannot contain spaces" in spaces
    assert "sekrit" not in spaces
    assert "apiKeys[1]: empty api key" in refusal('apiKeys: ["x", ""]')


def test_c41_strip_params_is_tidied() -> None:
    """Trimmed, sorted, each once, without `model`."""
    m = model('{cmd: "z ${PORT}", filters: {stripParams: " top_k, model ,temperature,,top_k "}}')

    assert m.filters.strip_params == ("temperature", "top_k")


def test_c42_the_older_spelling_of_strip_params() -> None:
    """It counts only when the newer one is empty."""
    old = model('{cmd: "z ${PORT}", filters: {strip_params: "a, b"}}')
    both = model('{cmd: "z ${PORT}", filters: {strip_params: "a, b", stripParams: c}}')
    empty = model('{cmd: "z ${PORT}", filters: {strip_params: "a, b", stripParams: ""}}')

    assert old.filters.strip_params == ("a", "b")
    assert both.filters.strip_params == ("c",)
    assert empty.filters.strip_params == ("a", "b")


def test_c44_names_of_set_params_by_id_are_aliases() -> None:
    """Macros work in those keys; the model's own id is no alias."""
    config = read(
        """
        models:
          a:
            cmd: "z ${PORT}"
            filters:
              setParamsByID:
                "${MODEL_ID}:hi": {r: high}
                a: {r: base}
        """
    )

    assert config.models["a"].aliases == ("a:hi",)
    assert config.models["a"].filters.set_params_by_id == {
        "a:hi": {"r": "high"},
        "a": {"r": "base"},
    }


@pytest.mark.parametrize(
    ("key", "message"),
    [("b", "conflicts with an existing model id"), ("q", "duplicate alias 'q', already used")],
)
def test_c45_names_of_set_params_by_id_mean_one_model(key: str, message: str) -> None:
    """They can be neither another model's id nor its alias."""
    text = f"""
        models:
          a: {{cmd: "z ${{PORT}}", filters: {{setParamsByID: {{{key}: {{r: 1}}}}}}}}
          b: {{cmd: "z ${{PORT}}", aliases: [q]}}
        """

    assert message in refusal(text)


def test_c46_preload_is_resolved() -> None:
    """Trimmed, aliases resolved, unknown names dropped, duplicates kept."""
    result = loaded(
        """
        models: {a: {cmd: "z ${PORT}", aliases: [aa]}}
        hooks: {on_startup: {preload: [" a ", aa, nope, a]}}
        """
    )

    assert result.config.hooks.on_startup.preload == ("a", "a", "a")
    assert "hooks.on_startup.preload[2]: 'nope' isn't a model or alias" in result.warnings[0]


def test_c48_anchors_and_merge_keys() -> None:
    """Macros are expanded in each place an anchor is used."""
    config = read(
        """
        x-t: &t
          cmd: "z --m ${MODEL_ID} -p ${PORT}"
          ttl: 30
        models:
          a: *t
          b: {<<: *t, ttl: 60}
        """
    )

    assert [(m.cmd, m.ttl_s) for m in config.models.values()] == [
        ("z --m a -p 5800", 30),
        ("z --m b -p 5801", 60),
    ]


def test_c49_a_key_twice_names_both_lines() -> None:
    """One of the two models would be lost without a word."""
    message = refusal(
        """
        models:
          a: {cmd: "z ${PORT}"}
          a: {cmd: "y ${PORT}"}
        """
    )

    assert message.startswith("config.yaml:4: models.a: the key is already at line 3")


def test_c50_samples_are_5_seconds_apart() -> None:
    """0 and null mean the default."""
    assert "performance.every: must be at least 5s" in refusal("performance: {every: 1s}")
    assert read("performance: {every: 0s}").performance.every_s == 5.0
    assert read("performance: {every: null}").performance.every_s == 5.0
    assert read("performance: {every: 1m}").performance.every_s == 60.0


def test_c52_modalities_are_known() -> None:
    """The error lists them."""
    message = refusal("models: {a: {cmd: 'z ${PORT}', capabilities: {in: [text, video]}}}")

    assert "models.a.capabilities.in[1]: 'video' isn't possible here" in message
    assert "audio, image or text" in message


@pytest.mark.parametrize("profiles", ["[a, b]", "{coding: [a, b]}"])
def test_c53_profiles_are_no_lists_any_more(profiles: str) -> None:
    """The older form meant something else."""
    assert "the list form is no longer supported" in refusal(AB + f"profiles: {profiles}\n")


def test_c54_pins_lead_to_what_there_is() -> None:
    """Or to nothing, which makes a name unavailable."""
    profiles = "profiles: {{p: {{pins: {{small: {target}}}}}}}\n"

    assert refusal(AB + profiles.format(target="zz")) == (
        "config.yaml:2: profiles.p.pins.small: no model or alias 'zz'; "
        "define it under models or peers"
    )
    assert read(AB + profiles.format(target="~")).profiles["p"].pins == {"small": None}


def test_c56_who_spills_over_must_be_allowed_together() -> None:
    """In the automatic group there is one model at a time."""
    text = AB + "memory: {mode: off}\nselectors: {s: {strategy: spillover, targets: [a, b]}}\n"

    assert refusal(text) == (
        "config.yaml:3: selectors.s.targets: a, b must share a group with swap: false "
        "to be up together"
    )


def test_c57_full_names_of_peers_are_theirs() -> None:
    """No model may be called like a peer's."""
    text = "models: {box/m: {cmd: 'z ${PORT}'}}\npeers: {box: {proxy: 'http://x', models: [m]}}\n"

    assert refusal(text) == (
        "config.yaml:2: peers.box.models[0]: a model's id conflicts with qualified peer name "
        "'box/m'; rename one"
    )


@pytest.mark.parametrize(
    ("peer", "message"),
    [
        ("{proxy: 'http://x'}", "peers.box.models: 'models' is required"),
        ("{proxy: 'http://x', models: []}", "peers.box.models: a peer needs models"),
        ("{models: [m]}", "peers.box.proxy: 'proxy' is required"),
        ("{proxy: x, models: [m]}", "peers.box.proxy: 'x' isn't an http or https URL"),
    ],
)
def test_c58_a_peer_is_somewhere_and_has_models(peer: str, message: str) -> None:
    """Else there is nothing to ask, or nobody."""
    assert message in refusal(f"peers: {{box: {peer}}}\n")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("{vars: {x: nope}, sets: {s: x}}", "matrix: var 'x': no model has the id 'nope'"),
        ("{evict_costs: {a: 0}, sets: {s: a}}", "matrix: evict cost of 'a' must be positive"),
        ("{sets: {s: '+t', t: 'a & +s'}}", "circular reference"),
        ("{sets: {s: 'a & +q'}}", "matrix: set 's': undefined set 'q'"),
        ("{sets: {s: '(a'}}", "matrix: set 's': missing closing parenthesis"),
    ],
)
def test_c60_a_matrix_that_cannot_be_meant(matrix: str, message: str) -> None:
    """Five mistakes, five messages."""
    assert message in refusal(AB + f"matrix: {matrix}\n")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "models:\n"])
def test_c61_an_empty_document_loads(text: str) -> None:
    """There are no models then, and the automatic group is empty."""
    config = read(text)

    assert config.models == {}
    assert config.groups == {DEFAULT_GROUP: GroupConfig()}


@pytest.mark.parametrize(("text", "kind"), [("- a\n", "a list"), ("a\n", "text"), ("5\n", "5")])
def test_c62_the_top_is_a_mapping(text: str, kind: str) -> None:
    """The error says what it is instead."""
    assert refusal(text).startswith(f"config.yaml:1: expected a mapping, not {kind}")


def test_c64_macros_are_checked_in_unknown_keys_of_models() -> None:
    """A wrong macro in a key that is otherwise ignored is an error."""
    message = refusal("models: {a: {cmd: 'z ${PORT}', bar: '${nope}'}}")

    assert "models.a.bar: unknown macro '${nope}'" in message


def test_c65_an_unset_variable_is_an_error_unless_in_a_comment() -> None:
    """The error names the variable."""
    message = refusal("models: {a: {cmd: 'z ${PORT} ${env.X}'}}")

    assert "config.yaml:1: models.a.cmd: environment variable 'X' is not set" in message
    assert read("# uses ${env.X}\nmodels: {}  # ${env.X}\n").models == {}


def test_c66_the_automatic_groups_name_is_taken() -> None:
    """A group of that name is ignored, its members are in no group, and a warning says so."""
    result = loaded(
        """
        models: {a: {cmd: "z ${PORT}"}}
        groups: {"(default)": {swap: false, members: [a]}}
        """
    )

    assert result.config.groups == {DEFAULT_GROUP: GroupConfig()}
    assert "groups.(default): '(default)' is the automatic group" in result.warnings[0]


def test_c68_a_models_macro_is_its_own() -> None:
    """Another model doesn't know it."""
    message = refusal(
        """
        models:
          a: {macros: {q: 1}, cmd: "z ${PORT} ${q}"}
          b: {cmd: "z ${PORT} ${q}"}
        """
    )

    assert message.startswith("config.yaml:4: models.b.cmd: unknown macro '${q}'")


def test_c73_the_stores_path_is_not_empty() -> None:
    """A path that is given is meant."""
    assert "config.yaml:1: store.path: must not be empty" in refusal('store: {path: ""}')


def test_c74_windows_stops_with_taskkill() -> None:
    """Elsewhere a signal does it, without a command."""
    assert default_cmd_stop("win32") == "taskkill /f /t /pid ${PID}"
    assert default_cmd_stop("linux") == ""
    assert default_cmd_stop("darwin") == ""


@pytest.mark.parametrize("mode", ["enable", "endpoints"])
@pytest.mark.parametrize("given", ["", "sleepEndpoints: [{endpoint: /s}]"])
def test_c76_sleep_needs_endpoints(given: str, mode: str) -> None:
    """Both lists must have a step."""
    message = refusal(f"models: {{a: {{cmd: 'z ${{PORT}}', sleepMode: {mode}, {given}}}}}")

    missing = "wake" if given else "sleep"
    assert f"models.a.{missing}Endpoints: sleepMode is {mode}, so" in message


@pytest.mark.parametrize("mode", ["maybe", '""', "Enable", "on"])
def test_c77_sleep_mode_is_one_of_those_there_are(mode: str) -> None:
    """An empty text is none of them; null is the global default."""
    message = refusal(f"models: {{a: {{cmd: 'z ${{PORT}}', sleepMode: {mode}}}}}")

    assert "models.a.sleepMode: " in message
    assert "write auto, cuda, disable, enable, endpoints, off or pageout" in message
    assert model('{cmd: "z ${PORT}", sleepMode: null}').sleep_mode == "auto"


def test_c78_sleep_methods() -> None:
    """GET, POST, PUT and PATCH in any case; steps are checked even when the mode is off."""
    message = refusal(
        "models: {a: {cmd: 'z ${PORT}', sleepEndpoints: [{endpoint: /s, method: delete}]}}"
    )
    m = model('{cmd: "z ${PORT}", wakeEndpoints: [{endpoint: /w, method: put}]}')

    assert "models.a.sleepEndpoints[0].method: 'DELETE' isn't possible here" in message
    assert "GET, PATCH, POST or PUT" in message
    assert m.wake_endpoints[0].method == "PUT"


def test_c80_sleep_timeouts_are_at_least_1() -> None:
    """What is smaller counts as 1."""
    config = read("sleepRequestTimeout: 0\nwakeRequestTimeout: -3\n")

    assert (config.sleep_request_timeout_s, config.wake_request_timeout_s) == (1, 1)
