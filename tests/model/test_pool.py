"""Fixed pools against a reference that counts, and the bounds of Vee and Hsu: Lemma 2.2 and Theorem 2.3, for both kinds of local pools."""

import random

import pytest

from conftest import RECORD_BYTES, ModelFailure, first_seed, report

M_MAX = 10
OPERATIONS = 60


def test_pool_agrees_with_its_reference(model, explore):
    assert explore(model("pool")) > 0


def test_pool_agrees_with_its_reference_for_long(model, random_runs):
    assert random_runs(model("pool")) > 0


@pytest.mark.parametrize("kind", ["rounds", "stacks"])
def test_bound_for_every_transfer_size(model, kind):
    """Every m up to M_MAX, every m_alpha and m_beta, with random requests of 1 to 6 local pools each."""
    one, seed, choices = model("pool"), first_seed(), 0
    generator = random.Random(seed)
    for m in range(1, M_MAX + 1):
        for m_alpha in range(1, m + 1):
            for m_beta in range(1, m + 1):
                stage = bytes([m - 1, m_alpha - 1, m_beta - 1, generator.randrange(6), kind == "stacks", generator.randrange(256), 0, 0])
                data = stage + generator.randbytes(OPERATIONS * RECORD_BYTES)
                try:
                    one.run(data)
                except ModelFailure:
                    report(one.name, data, one.run, f"m {m}, m_alpha {m_alpha}, m_beta {m_beta}, {kind}, with STRATA_MODEL_SEED={seed}")
                choices += 1
    assert choices == sum(m * m for m in range(1, M_MAX + 1))
