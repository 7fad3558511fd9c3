"""Options: what is taken, what is refused and how the message helps, and the key."""

import copy
import operator
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_piecewise import config as config_module
from torch_piecewise.config import MODES, OWN, PLANNED, SPLIT_VARIABLE, SPLITS, Config
from torch_piecewise.errors import (
    CompilerMissing,
    NotYetAvailable,
    OptionError,
    PiecewiseError,
    UnsupportedSetting,
    UnsupportedTorch,
    nearest,
)

INDUCTOR = {
    "max_autotune": False,
    "fallback_random": False,
    "freezing": False,
    "cpp.simdlen": None,
    "cpp.cxx": (None, "g++"),
    "triton.cudagraphs": False,
    "post_grad_fusion_options": {},
    "post_grad_custom_post_pass": None,
    "compile_threads": 2,
}


def of(options=None, mode=None, **kwargs):
    return Config.of(options, mode, inductor_options=INDUCTOR, **kwargs)


@pytest.fixture(autouse=True)
def fresh_environment(monkeypatch):
    monkeypatch.delenv(SPLIT_VARIABLE, raising=False)
    config_module._default_split.cache_clear()
    yield
    config_module._default_split.cache_clear()


def test_defaults():
    assert of() == of({}) == Config() == of(None, "default")
    assert (Config().split, Config().piece_functions, Config().max_pieces) == ("auto", False, 16)


def test_own_and_inductor_options():
    config = of({"split": "seams", "max-pieces": 4, "max-autotune": True, "cpp.simdlen": 8})
    assert (config.split, config.max_pieces, config.mode) == ("seams", 4, None)
    assert config.inductor == (("cpp.simdlen", 8), ("max_autotune", True))
    assert config.patches() == {"cpp.simdlen": 8, "max_autotune": True}


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"splitt": "off"}, ["'splitt'", "nearest valid", "'split'"]),
        ({"max_autotun": True}, ["'max_autotun'", "'max_autotune'"]),
        ({"simdlen": 8}, ["'simdlen'", "'cpp.simdlen'"]),
        ({"zzqqxx": 1}, ["'zzqqxx'", "list_options"]),
        (
            {"split": "seam"},
            ["'split'", "'seam'", "'auto', 'seams', 'off'", "did you mean 'seams'"],
        ),
        ({"split": True}, ["'split'", "True (bool)", "'off'"]),
        ({"piece_functions": 1}, ["'piece_functions'", "1 (int)", "True or False"]),
        ({"max_pieces": 0}, ["'max_pieces'", "at least 1"]),
        ({"max_pieces": True}, ["'max_pieces'", "True (bool)", "an int"]),
        ({"max_pieces": 2.0}, ["'max_pieces'", "2.0 (float)"]),
        ({"mode": "max-autotun"}, ["'mode'", "did you mean 'max-autotune'"]),
        ({"mode": 3}, ["'mode'", "3 (int)", "'reduce-overhead'"]),
        ({"max_autotune": "yes"}, ["'max_autotune'", "'yes' (str)", "a bool"]),
        ({3: 1}, ["'3'", "(int)", "a str"]),
        ({"compile_threads": "2"}, ["'compile_threads'", "'2' (str)", "an int, as now 2"]),
        (["split"], ["'options'", "['split'] (list)", "a dict", "{'split': 'seams'}"]),
        ("split", ["'options'", "(str)", "a dict"]),
        ([], ["'options'", "(list)"]),
        ({"max-autotune": True, "max_autotune": False}, ["'max_autotune'", "twice"]),
    ],
)
def test_refused(options, parts):
    with pytest.raises(OptionError) as caught:
        of(options)
    assert [part for part in parts if part not in str(caught.value)] == []
    assert caught.value.option


@pytest.mark.parametrize("name", PLANNED)
def test_planned_options_say_so(name):
    with pytest.raises(NotYetAvailable, match=f"'{name}' is planned.*split") as caught:
        of({name: None})
    assert caught.value.option == name


def test_mode_both_ways():
    assert of({"mode": "max-autotune"}).mode == "max-autotune" == of({}, "max-autotune").mode
    assert of({"mode": "max-autotune"}, "max-autotune").mode == "max-autotune"
    assert of({"mode": "default"}) == of({"mode": None}) == of()
    with pytest.raises(OptionError, match="mode= and options="):
        of({"mode": "default"}, "max-autotune")
    with pytest.raises(OptionError, match="mode=: 'mode' is 'fast'"):
        of(None, "fast")
    assert of(None, "lite", modes=[*MODES, "lite"]).mode == "lite"


def test_types_as_inductor_declares_them():
    types = {"cpp.simdlen": int | None, "max_autotune": bool, "compile_threads": int | None}
    check = {"inductor_types": types.__getitem__}
    assert of({"compile_threads": None}, **check).patches() == {"compile_threads": None}
    assert of({"cpp.simdlen": "x"}, **check).patches() == {
        "cpp.simdlen": "x"
    }  # as torch: unions pass
    with pytest.raises(OptionError, match="'max_autotune'"):
        of({"max_autotune": 1}, **check)
    with pytest.raises(OptionError, match="'compile_threads'"):  # no declared types: that of now
        of({"compile_threads": None})
    assert of({"cpp.cxx": "clang++"}).patches() == {"cpp.cxx": "clang++"}


def test_unhashable_values_pass_on_and_key():
    options = {"post_grad_fusion_options": {"b": [1, {2}], "a": {}}}
    config = of(options)
    assert config.patches()["post_grad_fusion_options"] is options["post_grad_fusion_options"]
    assert hash(config) == hash(of(copy.deepcopy(options))) and config == of(options)
    assert "{'a':{},'b':[1,{2}]}" in config.key()
    assert of({"post_grad_fusion_options": {"a": {}, "b": [1, {2}]}}).key() == config.key()


def test_key_holds_no_address():
    class Pass:
        def __call__(self, graph): ...

    for value in (lambda g: g, Pass(), operator.add, test_defaults):
        key = of({"post_grad_custom_post_pass": value}).key()
        assert " at 0x" not in key and "post_grad_custom_post_pass" in key
    assert "test_defaults" in of({"post_grad_custom_post_pass": test_defaults}).key()


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "split": st.sampled_from(SPLITS),
        "piece_functions": st.booleans(),
        "max_pieces": st.integers(1, 99),
        "mode": st.sampled_from(MODES),
        "max_autotune": st.booleans(),
        "cpp.simdlen": st.none() | st.integers(1, 64),
        "post_grad_fusion_options": st.dictionaries(st.text(max_size=3), st.integers() | st.text()),
    },
)


@given(SETTINGS, SETTINGS)
def test_equal_settings_equal_key(first, second):
    a, b = of(first), of(dict(reversed(first.items())))
    assert a == b and hash(a) == hash(b) and a.key() == b.key()
    other = of(second)
    assert (a == other) == (a.key() == other.key())
    assert "-" not in "".join(a.patches()) and set(a.patches()) == set(first) - set(OWN)


@given(st.text(), st.none() | st.integers() | st.text() | st.booleans())
def test_any_option_is_taken_or_named(name, value):
    try:
        of({name: value})
    except OptionError as error:
        assert repr(error.option) in str(error)


def test_environment_is_read_once(monkeypatch):
    monkeypatch.setenv(SPLIT_VARIABLE, "off")
    assert of().split == "off" and of({"split": "auto"}).split == "auto"
    monkeypatch.setenv(SPLIT_VARIABLE, "seams")
    assert of().split == "off"
    config_module._default_split.cache_clear()
    monkeypatch.setenv(SPLIT_VARIABLE, "on")
    with pytest.raises(OptionError, match=f"environment variable {SPLIT_VARIABLE}.*'on'"):
        of()


def test_all_errors_say_what_where_and_what_to_do():
    setting = UnsupportedSetting.of("cpu_backend", "halide", "it needs C++", "set it to 'cpp'")
    assert "cpu_backend is 'halide'" in str(setting) and str(setting).endswith("set it to 'cpp'")
    missing = CompilerMissing.of(["g++-99"], OSError("not found"))
    assert "g++-99" in str(missing) and "not found" in str(missing) and "CXX" in str(missing)
    for error in (setting, missing, NotYetAvailable.of("dim", OWN)):
        assert isinstance(error, PiecewiseError)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert issubclass(OptionError, ValueError) and issubclass(PiecewiseError, RuntimeError)


def test_torch_versions():
    for version in ("2.11.0", "2.13.0+cpu", "2.14.1", "2.14.0a0+git123"):
        UnsupportedTorch.check(version)
    for version in ("2.10.1", "2.15.0", "3.0", "1.13", "unknown"):
        with pytest.raises(UnsupportedTorch, match="needs torch >=2.11,<2.15"):
            UnsupportedTorch.check(version)


def test_nearest_prefers_the_same_last_part():
    assert nearest("simdlen", ["simd", "cpp.simdlen"])[0] == "cpp.simdlen"
    assert nearest("qqq", ["simd"]) == []
