"""The `needs` mark: absent tools are skipped by name and counted, or cause a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
    import pytest

    @pytest.mark.needs("no-such-tool", "linux")
    def test_one(): pass

    @pytest.mark.needs("no-such-tool")
    def test_two(): pass

    @pytest.mark.needs("sh")
    def test_three(): pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(Path(__file__).parents[1].joinpath("conftest.py").read_text())
    pytester.makepyfile(TESTS)
    return pytester


@pytest.mark.needs("linux")
def test_absent_tools_are_skipped_by_name_and_counted(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDSCOPE_REQUIRE_TOOLS", raising=False)
    result = suite.runpytest("-rs")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["*needs no-such-tool*", "*for want of: no-such-tool (2)"])


@pytest.mark.needs("linux")
def test_a_tool_that_ci_names_as_absent_may_be_absent(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDSCOPE_REQUIRE_TOOLS", "1")
    monkeypatch.setenv("SCHEDSCOPE_ABSENT", "perfetto no-such-tool")
    suite.runpytest().assert_outcomes(passed=1, skipped=2)


@pytest.mark.needs("linux")
def test_absent_tools_can_be_forbidden(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDSCOPE_REQUIRE_TOOLS", "1")
    monkeypatch.delenv("SCHEDSCOPE_ABSENT", raising=False)
    result = suite.runpytest()
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*needs no-such-tool*forbids skipping*"])
