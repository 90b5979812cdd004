"""Every loss is a function of tensors that cites its equation."""

import torch
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


def adversarial(critic_map: Tensor) -> Tensor:
    """How unlike a real image each transported one looks to the critic: [batch].

    L_adv of Appendix A.3.1 in the least-squares form of the CycleGAN code that the paper follows, where the paper
    prints logarithms: the mean over patches of (D(M(x)) - 1)^2.
    """
    return (critic_map.to(torch.promote_types(critic_map.dtype, torch.float32)) - 1).square().flatten(1).mean(dim=1)


def reconstruction(restored: Tensor, original: Tensor) -> Tensor:
    """The mean absolute difference of each image pair: [batch].

    L_cyc of Appendix A.3.1 where `restored` went to the other domain and back, L_idt where it was transported into
    the domain that it is from.
    """
    return (restored - original).abs().flatten(1).mean(dim=1)


def critic_loss(on_real: Tensor, on_transported: Tensor) -> Tensor:
    """L_d of Appendix A.3.1, least squares: real images to 1, transported ones of all mechanisms to 0.

    The mean over the transported images of all k mechanisms is the paper's 1/k sum. The factor 1/2 is CycleGAN's.
    """
    return 0.5 * ((on_real - 1).square().mean() + on_transported.square().mean())
