"""Seeds depend on every part of their name, and on nothing else."""

from cua_lab.seeds import derive_seed


def test_a_seed_is_the_same_on_every_machine() -> None:
    assert derive_seed("laptop", 0, 3) == derive_seed("laptop", 0, 3)
    assert 0 <= derive_seed("laptop", 0, 3) < 2**31


def test_parts_do_not_run_together() -> None:
    seeds = {
        derive_seed("a", 12),
        derive_seed("a", 1, 2),
        derive_seed("a1", 2),
        derive_seed("a", "12"),
    }
    assert len(seeds) == 4
