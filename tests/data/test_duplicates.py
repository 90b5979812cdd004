import hashlib

import numpy as np
from numpy.typing import NDArray

from tcm.data.duplicates import HASH, same_content, same_content_in_several


def hashes(*contents: str) -> NDArray[np.bytes_]:
    digests = [hashlib.blake2b(content.encode(), digest_size=16).hexdigest() for content in contents]
    return np.array(digests, dtype=HASH)


def test_rows_of_each_repeated_content_in_order():
    assert same_content(hashes("b", "a", "c", "a", "b", "b")) == [[0, 4, 5], [1, 3]]
    assert same_content(hashes("a", "b")) == []
    assert same_content(hashes()) == []


def test_only_contents_of_several_sets():
    found = same_content_in_several([hashes("a", "b", "a"), hashes(), hashes("c", "c", "a"), hashes("b")])
    assert found == [[(0, 0), (0, 2), (2, 2)], [(0, 1), (3, 0)]]
    assert same_content_in_several([]) == []
