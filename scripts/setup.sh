#!/bin/sh
# Prepares .venv: Python packages at the versions of the lock files, this package (editable), and a Java runtime if the
# machine has none. A finished installation leaves a stamp; calling it again with nothing changed returns at once.
#
#   PYTHON=/path/to/python3 scripts/setup.sh    use this interpreter instead of the first suitable one on the PATH
set -eu
cd "$(dirname "$0")/.."

VENV=$PWD/.venv
STAMP=$VENV/.installed
UNFINISHED=$VENV/.installing
# Most of it for building pyspark; 1500 MB stay.
NEEDED_MB=3500
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_QUIET=1

say() { printf 'setup: %s\n' "$*"; }
give_up() {
    printf 'setup: %s\n' "$*" >&2
    exit 2
}

# Changes when anything that decides what is installed changes.
key() {
    { pwd; cat scripts/setup.sh pyproject.toml requirements*.lock; } | { sha256sum 2>/dev/null || shasum -a 256; }
}

suitable() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        suitable "$PYTHON" || give_up "PYTHON=$PYTHON is not a Python 3.11 to 3.14; set PYTHON to one that is."
        echo "$PYTHON"
        return
    fi
    for python in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if suitable "$python"; then
            echo "$python"
            return
        fi
    done
    give_up "no Python 3.11 to 3.14 found; install one, or say where it is: make setup PYTHON=/path/to/python3.11"
}

check_disk() {
    free_mb=$(df -Pk . | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free_mb" -ge "$NEEDED_MB" ] ||
        give_up "only $free_mb MB free here; make room for $NEEDED_MB MB and run \`make setup\` again."
}

# Works, has pip, was made for this folder (a moved or copied one still points to the old place), and no installation
# into it was cut short: pip takes a half-written package for an installed one.
venv_is_sound() {
    [ ! -e "$UNFINISHED" ] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1 &&
        grep -qF "$VENV" "$VENV/bin/activate"
}

# Debian splits ensurepip off into python3-venv: try what may be there instead before asking for it.
make_venv() {
    rm -rf "$VENV"
    if "$1" -m venv "$VENV" >/dev/null 2>&1 || "$1" -m virtualenv -q "$VENV" 2>/dev/null; then return; fi
    if "$1" -m pip --version >/dev/null 2>&1 && "$1" -m venv --clear --without-pip "$VENV" 2>/dev/null &&
        "$1" -m pip --python "$VENV/bin/python" install pip 2>/dev/null; then return; fi

    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    command -v apt-get >/dev/null ||
        give_up "$1 cannot make a virtual environment; install Python's venv and pip modules and run \`make setup\` again."
    [ "$(id -u)" -eq 0 ] ||
        give_up "$1 cannot make a virtual environment; type: sudo apt-get install -y $package && make setup"
    say "installing $package"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get install -qq -y "$package" || { apt-get update -qq && apt-get install -qq -y "$package"; }; } \
        </dev/null >/dev/null 2>&1 || give_up "could not install $package; type: apt-get update && apt-get install -y $package"
    rm -rf "$VENV"
    "$1" -m venv "$VENV" >/dev/null || give_up "$1 cannot make a virtual environment even with $package."
}

install_packages() {
    touch "$UNFINISHED"
    # Building pyspark needs more room than a small /tmp has.
    mkdir -p "$VENV/tmp"
    trap 'rm -rf "$VENV/tmp"' EXIT
    trap 'exit 130' INT TERM
    export TMPDIR="$VENV/tmp"
    pip_install --require-hashes -r requirements-build.lock
    pip_install --require-hashes --no-build-isolation -r requirements.lock
    pip_install --no-deps --no-build-isolation --editable .
    rm "$UNFINISHED"
}

pip_install() {
    "$VENV/bin/python" -m pip install "$@" ||
        give_up "a package could not be installed (see above); check the network connection and run \`make setup\` again."
}

# The program's own search decides, so that what passes here also starts Spark.
java_is_there() { "$VENV/bin/python" -m meander.run.java >/dev/null 2>&1; }

wanted=$(key)
if [ "$(cat "$STAMP" 2>/dev/null)" != "$wanted" ] || ! "$VENV/bin/python" -c '' 2>/dev/null; then
    rm -f "$STAMP"
    if ! venv_is_sound; then
        python=$(find_python)
        check_disk
        say "making .venv with $("$python" --version)"
        make_venv "$python"
    fi
    say "installing packages (the first time about 700 MB and two minutes)"
    install_packages
    installed=yes
fi
if ! java_is_there; then
    say "no Java 17 or newer found: installing one into .venv"
    rm -f "$STAMP"
    touch "$UNFINISHED"
    pip_install --require-hashes -r requirements-java.lock
    rm "$UNFINISHED"
    installed=yes
    java_is_there || give_up "$("$VENV/bin/python" -m meander.run.java 2>&1)"
fi
if [ -n "${installed:-}" ]; then
    printf '%s\n' "$wanted" >"$STAMP"
    say "ready: .venv/bin/meander --help"
fi
