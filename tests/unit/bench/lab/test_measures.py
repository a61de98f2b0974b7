"""What a run is judged by."""

from bench.lab.model import Measures, Second


def measured() -> Measures:
    measures = Measures()
    for now, hit in ((0.2, True), (0.9, False), (1.0, True), (3.5, True)):
        measures.answered(now, hit)
    return measures


def test_answers_are_counted_by_the_second() -> None:
    measures = measured()
    assert measures.second(0) == Second(requests=2, hits=1)
    assert measures.second(0).reads == 1
    assert measures.second(0).hit_rate == 0.5
    assert measures.second(2).hit_rate == 1.0
    assert measures.between(0, 4) == Second(4, 3)
    assert measures.between(2, 2) == Second(0, 0)
