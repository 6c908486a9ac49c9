#!/bin/bash
# Fills a virtual environment (argument: its folder) with requirements.txt and requirements-dev.txt, nothing else than
# the files whose digests stand there (what llama-cpp-python's build needs, pip resolves by itself), then proves that
# the compiled llama-cpp-python runs on this very processor. PYTHON names the interpreter. Running it again is cheap.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:?usage: tools/setup.sh FOLDER}
python=${PYTHON:-python3}

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed ($python is older or missing)."
if [ ! -x "$venv/bin/python" ]; then
    "$python" -m venv "$venv" || fail "python3 -m venv failed. On Debian: apt-get install python3-venv"
fi

installed() { "$venv/bin/python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("llama_cpp") is None)'; }
if ! installed; then
    for tool in gcc g++ make cmake; do
        command -v "$tool" >/dev/null || fail "$tool is missing; llama-cpp-python is compiled here." \
            "On Debian: apt-get install gcc g++ make cmake python3-dev"
    done
    echo "setup: installing; compiling llama-cpp-python takes about 4 minutes on two cores (pip keeps the result)."
fi
# The lines of one package in a lock file, with the digests of its files.
locked() { awk -v name="$1" '/^[^ #]/ { found = index($0, name "==") == 1 } found && !/^ *#/' "$2"; }
install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes "$@" |
        { grep -v '^Requirement already satisfied' || true; }
}

# First pip itself: one older than 23.1 uses no wheel that it compiled before when digests are asked for.
install -r <(locked pip requirements-dev.txt)
# One call, so that pip resolves both files together.
install -r requirements.txt -r requirements-dev.txt

echo "setup: proving the ggml library with one multiplication and one token"
status=0
"$venv/bin/python" tools/setup_check.py || status=$?
if [ "$status" -eq 3 ]; then
    # pip's cache holds a wheel that was compiled for another processor (ggml is built for the one it finds).
    echo "setup: the cached build of llama-cpp-python does not run on this processor; compiling it again (4 minutes)"
    install --no-cache-dir --force-reinstall --no-deps --no-binary llama-cpp-python \
        -r <(locked llama-cpp-python requirements.txt)
    status=0
    "$venv/bin/python" tools/setup_check.py || status=$?
fi
[ "$status" -eq 0 ] || fail "llama-cpp-python does not work here; see the lines above."
