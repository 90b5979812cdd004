import torch
from torch import Tensor

from tcm.data import digits as made
from tcm.data.augment import as_input
from tcm.data.task import Task
from tcm.mechanisms.digit_reader import HELD_OUT, digit_reader, readability
from tcm.mechanisms.pair import Side


def test_reads_held_out_digits_of_both_domains(digits: Task):
    reader = digit_reader()
    for store in digits:
        read = reader.read(as_input(store.images[HELD_OUT]))
        assert float((read == store.labels[HELD_OUT]).float().mean()) > 0.97


def test_reads_the_shape_and_not_the_colour(digits: Task):
    """The source's colour tells the class; the digits in any other colour are read as well."""
    bare, labels, _ = made.shapes("source")
    factors, noise = made.domain("source").factors[HELD_OUT], torch.zeros(1, 32, 32, 3).numpy()
    factors[:, made.FACTORS.index("temperature")] *= -1
    images = torch.from_numpy(made.render(bare[HELD_OUT], factors, noise))
    read = digit_reader().read(as_input(images))
    assert float((read == torch.from_numpy(labels[HELD_OUT])).float().mean()) > 0.97


def test_every_copy_is_the_same_and_training_leaves_the_random_numbers_alone():
    state = torch.get_rng_state()
    one, two = digit_reader(), digit_reader()
    assert torch.equal(torch.get_rng_state(), state)
    assert one is not two
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_readability_of_digits_that_stay_that_turn_and_that_are_wiped_out(digits: Task):
    def transport(images: Tensor, to: Side) -> Tensor:
        return torch.stack([images, images.flip((2, 3)), torch.full_like(images, 0.5)])

    found = readability(transport, digits)
    for side in ("source", "target"):
        same, turned, wiped = found.transported[side]
        assert same == found.untouched[side] > 0.97
        assert turned < 0.6
        assert wiped < 0.2


def test_untouched_goes_by_destination(digits: Task):
    reader = digit_reader()
    found = readability(lambda images, to: images[None], digits)
    sides: tuple[Side, Side] = ("target", "source")
    for side, store in zip(sides, digits, strict=True):
        right = reader.read(as_input(store.images[HELD_OUT])) == store.labels[HELD_OUT]
        assert found.untouched[side] == float(right.float().mean())
