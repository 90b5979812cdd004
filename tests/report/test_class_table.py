"""Confusions as a table that fits a phone."""

import numpy as np

from tcm.report.class_table import OTHERS, confusion_table

NAMES = [f"c{index}" for index in range(20)]


def test_few_classes_are_all_shown():
    matrix = np.array([[3, 1], [2, 0]])
    table = confusion_table(matrix, ["cat", "dog"])
    assert table.whole
    assert table.columns == ["cat", "dog"]
    assert [[(cell.count, cell.share, cell.right) for cell in cells] for _, cells in table.rows] == [
        [(3, 0.75, True), (1, 0.25, False)],
        [(2, 1.0, False), (0, 0.0, True)],
    ]


def test_of_many_classes_those_with_the_most_mistakes_are_shown_and_rows_add_up():
    matrix = 10 * np.eye(20, dtype=np.int64)
    matrix[3, 17] = 5
    matrix[17, 9] = 4
    matrix[0, :] += 1
    table = confusion_table(matrix, NAMES)
    assert not table.whole
    assert table.columns[-1] == OTHERS
    assert {"c0", "c3", "c9", "c17"} <= set(table.columns)
    for name, cells in table.rows:
        assert sum(cell.count for cell in cells) == matrix[NAMES.index(name)].sum()
        assert [cell.right for cell in cells] == [column == name for column in table.columns]
