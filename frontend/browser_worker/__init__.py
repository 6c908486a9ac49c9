"""The browser worker's kernel: C sources in kernel/, and what builds them into frontend/static/worker/kernel*.wasm."""
