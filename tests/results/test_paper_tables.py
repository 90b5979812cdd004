import statistics

from tcm.results.identity import Spread
from tcm.results.paper_tables import AVERAGE, PAPER_ROWS
from tcm.results.store import TASKS

# Where the printed average is not that of the printed accuracies: 70.3, 80.8 and 90.4.
MISPRINTED = {(1, "CADA"), (2, "ResNet-50"), (2, "TCM")}


def test_every_row_of_the_tables_is_there():
    assert [sum(row.table == table for row in PAPER_ROWS) for table in (1, 2, 3, 4)] == [12, 11, 9, 6]
    for row in PAPER_ROWS:
        assert set(row.accuracies) - {AVERAGE} == set(TASKS[row.benchmark])


def test_the_averages_are_those_of_the_tasks_but_for_three():
    wrong = set()
    for row in PAPER_ROWS:
        if AVERAGE in row.accuracies:
            mean = statistics.mean(accuracy.mean for task, accuracy in row.accuracies.items() if task != AVERAGE)
            if abs(mean - row.accuracies[AVERAGE].mean) > 0.0501:
                wrong.add((row.table, row.method))
    assert wrong == MISPRINTED


def test_some_numbers_by_hand():
    found = {(row.table, row.method): row.accuracies for row in PAPER_ROWS}
    assert found[1, "TCM"]["A>C"] == Spread(58.6, None, None)
    assert found[1, "TCM"][AVERAGE] == Spread(70.7, None, None)
    assert found[2, "Baseline"]["C>I"] == Spread(92.1, 0.4, None)
    assert found[3, "TCM"] == {"Synthetic>Real": Spread(75.8, None, None)}
    assert found[4, "TCM, k = 10"]["P>C"] == Spread(96.4, None, None)
