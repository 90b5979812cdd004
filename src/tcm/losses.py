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


def confident_confusion(
    source_logits: Tensor, target_logits: Tensor, source_classes: Tensor, target_classes: Tensor
) -> Tensor:
    """The domain loss in which sure predictions count more: weights 1 + exp(-H), adding up to 1 in each domain.

    The entropy conditioning of Long et al. (2018), Eq. (8). `source_classes` and `target_classes` are class
    probabilities [batch, classes] and the logits are the discriminator's [batch, 1].
    """

    def weighted(losses: Tensor, classes: Tensor) -> Tensor:
        entropy = -(classes * classes.clamp_min(1e-6).log()).sum(dim=-1)
        weight = 1 + torch.exp(-entropy.detach())
        return (losses.squeeze(-1) * weight).sum() / weight.sum()

    source = weighted(F.softplus(-source_logits), source_classes)
    return 0.5 * (source + weighted(F.softplus(target_logits), target_classes))


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


def critic_error(verdicts: Tensor, truth: float) -> Tensor:
    """A part of L_d of Appendix A.3.1, least squares: the mean over images whose verdict should be `truth`.

    L_d adds that of real images, 1, and that of transported ones, 0, whose mean over all k mechanisms is the paper's
    1/k sum. The factor 1/2 is CycleGAN's.
    """
    return 0.5 * (verdicts - truth).square().mean()


def agreement(logits: Tensor, sharpness: float) -> Tensor:
    """How far the predictions on an image's views [views, batch, classes] are from their mean, sharpened.

    The mean over views is Eq. (1) evaluated directly; it teaches every view and learns nothing from them. It is raised
    to the power `sharpness` and normalised. The cross-entropy, mean over views and images.
    """
    mean = logits.detach().float().softmax(dim=-1).mean(dim=0) ** sharpness
    teacher = mean / mean.sum(dim=-1, keepdim=True)
    return -(teacher * logits.float().log_softmax(dim=-1)).sum(dim=-1).mean()


def vae_loss(restored: Tensor, original: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """L_v, Eq. (9), mean over the batch: -E log P(x | z) + KL(Q(z | x) || N(0, I)).

    The logarithm is missing in the paper. P(x | z) has variance 1 in every feature, so its negative logarithm is half
    the squared error, summed over the features, up to a constant.
    """
    kind = torch.promote_types(restored.dtype, torch.float32)
    mean, log_variance = mean.to(kind), log_variance.to(kind)
    error = 0.5 * (restored.to(kind) - original.to(kind)).square().sum(dim=-1)
    divergence = 0.5 * (log_variance.exp() + mean.square() - 1 - log_variance).sum(dim=-1)
    return (error + divergence).mean()


def proxy_loss(
    on_source: Tensor, on_transported_source: Tensor, on_target: Tensor, on_transported_target: Tensor
) -> Tensor:
    """-L_p, Eq. (10), from logits: the discriminators' binary cross-entropy, features of real images 1.

    D_s judges source images and transported target images, D_t target images and transported source images. The mean
    over all counterfactuals, [k, batch, 1], is the paper's 1/k sum. The discriminators minimise it; through a gradient
    reversal layer the backbone maximises it.
    """
    real = F.softplus(-on_source).mean() + F.softplus(-on_target).mean()
    return real + F.softplus(on_transported_source).mean() + F.softplus(on_transported_target).mean()
