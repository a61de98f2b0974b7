"""The ring's figures."""

from bench.lab.ring import SIZES, RingExperiment
from bench.table import RowsSection


def test_little_moves_on_a_ring_and_nearly_all_by_modulo() -> None:
    table, goals = RingExperiment(seed=1, scale=0.1).run(lambda: None).sections
    assert isinstance(table, RowsSection)
    assert [row[0] for row in table.rows] == [str(size) for size in SIZES]
    for row in table.rows:
        size = int(row[0])
        more, less, _, modulo_more, modulo_less = (float(cell.removesuffix("%")) / 100 for cell in row[4:])
        assert max(more, less) < 2 / size
        assert min(modulo_more, modulo_less) > 1 - 1.5 / size
    assert goals.figures[0].met
