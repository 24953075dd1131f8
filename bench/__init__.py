"""Benchmarks: each measurement beside its peer, in one run. See `bench/README.md` for how to read them."""
