"""The product broken on purpose: every mutation that once went unnoticed is noticed by its test."""

import pytest

from tools.mutants import ROOT, Mutation, mutated, read_mutations, run_all

MUTATIONS = read_mutations()


@pytest.mark.parametrize("mutation", [each for each in MUTATIONS if each.always], ids=lambda each: each.name)
def test_a_mutation_is_noticed(mutation: Mutation) -> None:
    (result,) = run_all([mutation], 1)
    assert result.is_caught, f"{result.verdict}\n{result.output[-4000:]}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_a_mutation_fits_the_source_and_names_tests_that_exist(mutation: Mutation) -> None:
    source = (ROOT / "src" / "holdfast" / mutation.file).read_text()
    assert mutated(mutation, source) is not None
    compile(mutated(mutation, source) or "", mutation.file, "exec")
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test
