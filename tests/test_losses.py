import math

import torch

from tcm.losses import domain_confusion


def test_domain_confusion_is_log_two_when_the_discriminator_knows_nothing():
    assert math.isclose(domain_confusion(torch.zeros(3, 1), torch.zeros(5, 1)).item(), math.log(2), rel_tol=1e-6)


def test_domain_confusion_falls_when_source_scores_high_and_target_low():
    right = domain_confusion(torch.full((3, 1), 4.0), torch.full((5, 1), -4.0))
    wrong = domain_confusion(torch.full((3, 1), -4.0), torch.full((5, 1), 4.0))
    assert right < 0.02 < 3 < wrong
