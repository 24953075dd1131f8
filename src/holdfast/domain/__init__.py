"""The domain: facts, ids, errors, limits, state machines and pure folds. No I/O, no await."""
