"""Benchmarks: each question beside its peer, in one run. `bench/README.md` says how to read them."""
