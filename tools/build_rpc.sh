#!/bin/bash
# Builds llama.cpp's RPC backend into a folder (argument, default var/bench/rpc): its server program and the library that
# a client loads beside the one that llama-cpp-python brought. Source: the very version that requirements.txt pins, so
# that both sides of `manage.py bench rpc` run the same code. Takes about 2 minutes on two cores. SDIST names a source
# distribution that is here already.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-${VAR_DIR:-var}/bench/rpc}
python=.venv/bin/python
pinned=$(grep -oE '^llama-cpp-python==[^ ]+' requirements.txt)

fail() {
    printf 'build_rpc: %s\n' "$@" >&2
    exit 1
}

for tool in gcc g++ make cmake; do
    command -v "$tool" >/dev/null || fail "$tool is missing. On Debian: apt-get install gcc g++ make cmake"
done
mkdir -p "$folder"
source=$folder/source
if [ ! -f "$source/tools/rpc/rpc-server.cpp" ]; then
    archive=${SDIST:-}
    if [ -z "$archive" ]; then
        "$python" -m pip download --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
            --dest "$folder" "$pinned"
        archive=$(echo "$folder"/llama_cpp_python-*.tar.gz)
    fi
    mkdir -p "$source"
    tar -xzf "$archive" -C "$source" --strip-components=3 --wildcards '*/vendor/llama.cpp/*'
fi

# Only the server and what it links; no curl, no user interface, no tests.
cmake -S "$source" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DGGML_RPC=ON -DGGML_RPC_RDMA=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_CURL=OFF >"$folder/configure.log" 2>&1 ||
    fail "cmake refused; its words are in $folder/configure.log"
cmake --build "$folder/build" --target ggml-rpc-server --parallel "$(nproc)" >"$folder/build.log" 2>&1 ||
    fail "the compiler failed; its words are in $folder/build.log"
ls "$folder"/build/bin/ggml-rpc-server "$folder"/build/bin/libggml-rpc.so*
