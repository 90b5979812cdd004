import torch

from tcm.mechanisms.pool import ImagePool


def numbered(first: int, count: int) -> torch.Tensor:
    return torch.arange(first, first + count).float().view(-1, 1, 1, 1).expand(-1, 3, 2, 2)


def numbers(images: torch.Tensor) -> list[int]:
    return [int(n) for n in images[:, 0, 0, 0]]


def test_until_it_is_full_the_pool_gives_back_what_it_gets():
    pool = ImagePool(6, 2)
    assert numbers(pool.exchange(numbered(1, 4))) == [1, 2, 3, 4]
    assert sorted(numbers(pool.images)) == [0, 0, 1, 2, 3, 4]
    out = numbers(pool.exchange(numbered(5, 4)))
    assert out[:2] == [5, 6]
    assert pool.filled == 6


def test_no_image_is_lost_or_doubled():
    torch.manual_seed(0)
    pool = ImagePool(6, 2)
    given, returned = [], []
    for step in range(50):
        fresh = numbered(1 + 5 * step, 5)
        given += numbers(fresh)
        out = numbers(pool.exchange(fresh))
        if step > 1:
            returned += out
    # What came back since the pool was full is no image twice, and about half of it is older than its step.
    assert len(set(returned)) == len(returned)
    old = sum(number < 1 + 5 * step for step in range(2, 50) for number in returned[5 * (step - 2) : 5 * (step - 1)])
    assert 80 < old < 160


def test_more_images_than_the_pool_holds():
    pool = ImagePool(3, 2)
    assert len(pool.exchange(numbered(0, 8))) == 8
    assert len(ImagePool(0, 2).exchange(numbered(0, 8))) == 8
