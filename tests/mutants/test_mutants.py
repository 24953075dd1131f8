"""Mutations that no test noticed once are noticed. `make mutants` applies all the others too."""

import pytest

from tools.mutants import ROOT, Mutation, mutate, read_mutations, run_all


@pytest.mark.parametrize("mutation", read_mutations("unnoticed"), ids=lambda each: each.name)
def test_a_mutation_is_noticed(mutation: Mutation) -> None:
    (result,) = run_all([mutation], 1)
    assert result.is_killed, f"{result.verdict}\n{result.output[-4000:]}"


@pytest.mark.parametrize("mutation", read_mutations(), ids=lambda each: each.name)
def test_a_mutation_fits_the_source_and_names_tests_that_exist(mutation: Mutation) -> None:
    changed = mutate(mutation, ROOT / "src")
    assert changed is not None, "the old text of each edit is in its file exactly once"
    for path, text in changed.items():
        if path.suffix == ".py":
            compile(text, str(path), "exec")
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test
