"""Every loss is a function of tensors that cites its equation."""

import torch.nn.functional as F
from torch import Tensor


def domain_confusion(source_logits: Tensor, target_logits: Tensor) -> Tensor:
    """The discriminator's binary cross-entropy, source = 1, target = 0, mean over both domains' images.

    Eq. (4) of Ganin et al. (2016). Through a gradient reversal layer the features maximise what the
    discriminator minimises.
    """
    source = F.binary_cross_entropy_with_logits(source_logits, source_logits.new_ones(source_logits.shape))
    target = F.binary_cross_entropy_with_logits(target_logits, target_logits.new_zeros(target_logits.shape))
    return 0.5 * (source + target)
