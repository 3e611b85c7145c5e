"""Settings as keyword arguments."""
import datetime
import json
import os
import re
import subprocess
import sys
import typing

import pytest

import troupe


def settings(**given):
    with troupe.Runtime(backend="mock", log_level="off", **given) as runtime:
        return runtime.settings


def test_names_are_those_of_the_settings_file_or_with_underscores():
    assert settings(mock_devices=3)["mock.devices"] == "3"
    assert settings(**{"mock.devices": 2})["mock.devices"] == "2"
    assert settings(fusion_max_operations=5)["fusion_max_operations"] == "5"


@pytest.mark.parametrize("given", ["250ms", 0.25, datetime.timedelta(milliseconds=250)])
def test_durations_are_text_or_seconds_or_timedeltas(given):
    assert settings(deadlines_form=given)["deadlines.form"] == "250ms"


def test_sizes_are_text_or_bytes():
    assert settings(mock_memory_bytes="1M")["mock.memory_bytes"] == settings(mock_memory_bytes=1 << 20)[
        "mock.memory_bytes"]


def test_a_setting_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(troupe.InvalidArgument, match="backend"):
        troupe.Runtime(backnd="mock")


def test_a_wrong_value_names_setting_and_choices():
    with pytest.raises(troupe.InvalidArgument, match="the setting backend .*opencl.*choose one of auto, mock, nccl"):
        troupe.Runtime(backend="opencl")
    with pytest.raises(troupe.InvalidArgument, match="the setting deadlines.form .*write 5s"):
        troupe.Runtime(deadlines_form="5")


def test_more_ranks_than_devices_are_refused():
    with troupe.Runtime(backend="mock", mock_devices=2, ranks=3, log_level="off") as runtime:
        with pytest.raises(troupe.InvalidArgument, match="2 devices"):
            runtime.form_world()


def test_an_environment_is_read_in_place_of_the_processs_own(monkeypatch):
    monkeypatch.setenv("TROUPE_MOCK_DEVICES", "5")
    monkeypatch.setenv("RANK", "not a number")
    given = {"TROUPE_BACKEND": "mock", "TROUPE_PROFILE": "frugal", "TROUPE_LOG": ""}
    with troupe.Runtime(environment=given, profile="latency", log_level="off") as runtime:
        found = runtime.settings
    assert (found["backend"], found["mock.devices"], found["profile"]) == ("mock", "4", "latency")
    with pytest.raises(troupe.InvalidArgument, match="TROUPE_PROFIL.*nearest is 'TROUPE_PROFILE'"):
        troupe.Runtime(environment={"TROUPE_PROFIL": "frugal"})


def test_keywords_beat_the_environment_which_beats_the_file(tmp_path):
    file = tmp_path / "troupe.json"
    file.write_text(json.dumps({"backend": "mock", "mock.devices": 5, "profile": "frugal", "log_level": "off"}))
    program = (f"import troupe\nwith troupe.Runtime(config={str(file)!r}, mock_devices=2) as made:\n"
               "  print(made.settings['mock.devices'], made.settings['profile'], made.form_world().size)")
    found = subprocess.run([sys.executable, "-c", program], env=dict(os.environ, TROUPE_PROFILE="balanced",
                                                                      TROUPE_MOCK_DEVICES="3"),
                           capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == ["2", "balanced", "2"]


def test_it_says_what_it_is():
    with troupe.Runtime(backend="mock", mock_devices=2, log_level="off") as runtime:
        assert "mock" in runtime.describe()
        with runtime.form_world() as world:
            assert (world.size, world.local_ranks, world.epoch) == (2, [0, 1], 1)
            assert world.status.phase == "ready" and not world.status.is_degraded
            assert [rank.number for rank in world] == [0, 1]
            assert "ready" in repr(world)
        assert world.status.phase == "stopped"
    assert troupe.__version__


@pytest.mark.parametrize(("size", "expected"), [(0, None), (1024, 1024), ("auto", 0)])
def test_a_world_says_what_it_has_of_one_shot_kernels(size, expected):
    with troupe.Runtime(backend="mock", mock_devices=2, log_level="off", one_shot_bytes=size) as runtime:
        status = runtime.form_world().status
    if expected is None:
        assert status.one_shot is None
        return
    assert (status.one_shot.part_bytes, status.one_shot.blocks > 0, status.one_shot.scratch_bytes > 0,
            "NVLink" in status.one_shot.why) == (expected, bool(expected), bool(expected), not expected)
    assert "one-shot kernels" in status.text


def test_a_setting_of_none_keeps_its_value():
    assert settings(profile=None)["profile"] == "balanced"


@pytest.mark.parametrize("name", ["backend", "profile", "strategy", "placement", "ordering", "fusion", "log_level"])
def test_the_names_for_type_checkers_are_those_of_the_settings(name):
    hints = typing.get_type_hints(troupe.Runtime.__init__)
    literal, = (one for one in typing.get_args(hints[name]) if one is not type(None))
    with pytest.raises(troupe.InvalidArgument, match="choose one of") as refused:
        troupe.Runtime(**{name: "mok"})
    choices = re.search("choose one of ([a-z_, ]+)", str(refused.value))[1]
    assert set(typing.get_args(literal)) == set(choices.split(", "))


def test_the_phases_for_type_checkers_are_those_of_a_world():
    phase = typing.get_type_hints(troupe.WorldEvent)["phase"]
    assert {"forming", "ready", "rebuilding", "failed", "stopping", "stopped"} == set(typing.get_args(phase))
