"""Every loss is a function of tensors that cites its equation."""

import torch
import torch.nn.functional as F
from torch import Tensor


def in_single(x: Tensor) -> Tensor:
    """x in float32 or better: half precision is too coarse for logarithms and small differences."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def domain_confusion(source_logits: Tensor, target_logits: Tensor) -> Tensor:
    """The discriminator's binary cross-entropy, source = 1, target = 0, mean over both domains.

    L_d of Ganin et al. (2016), Section 4. Through a gradient reversal layer the features maximise what the
    discriminator minimises.
    """
    source = F.binary_cross_entropy_with_logits(source_logits, source_logits.new_ones(source_logits.shape))
    target = F.binary_cross_entropy_with_logits(target_logits, target_logits.new_zeros(target_logits.shape))
    return 0.5 * (source + target)


def confident_confusion(
    source_logits: Tensor, target_logits: Tensor, source_classes: Tensor, target_classes: Tensor
) -> Tensor:
    """The domain loss with weights 1 + exp(-H), normalised in each domain, so that confident predictions count more.

    The entropy conditioning of Long et al. (2018), Eq. (8): H is the entropy of the class probabilities
    `source_classes` and `target_classes` [batch, classes]. The logits [batch, 1] are those of the discriminator.
    """

    def weighted(losses: Tensor, classes: Tensor) -> Tensor:
        weight = 1 + torch.exp(-entropy(classes).detach())
        return (losses.squeeze(-1) * weight).sum() / weight.sum()

    source = weighted(F.softplus(-source_logits), source_classes)
    return 0.5 * (source + weighted(F.softplus(target_logits), target_classes))


def certain_confusion(
    source_logits: Tensor, target_logits: Tensor, source_entropy: Tensor, target_entropy: Tensor
) -> Tensor:
    """The domain loss with weights exp(-H), divided in each domain by their sum, which has no gradient.

    In the code of GVB (Cui et al., 2020), which TCM's authors use. The entropies H [batch] do have a gradient: behind a
    gradient reversal layer it makes predictions certain in both domains. The logits [batch, 1] are the discriminator's.
    """

    def weighted(losses: Tensor, entropies: Tensor) -> Tensor:
        weight = torch.exp(-entropies)
        return (losses.squeeze(-1) * weight).sum() / weight.sum().detach()

    source = weighted(F.softplus(-source_logits), source_entropy)
    return 0.5 * (source + weighted(F.softplus(target_logits), target_entropy))


def domain_of_classes(logits: Tensor) -> Tensor:
    """The logit of the source against the target [batch], of a classifier of classes and domains.

    C^st of Zhang et al. (2019): of its logits [batch, 2 classes] the first half are classes of the source, the second
    half are classes of the target. The probability of a domain is the sum over its classes, so this is a difference of
    log-sums, which is finite where a sum is 0.
    """
    source, target = in_single(logits).chunk(2, dim=1)
    return source.logsumexp(dim=1) - target.logsumexp(dim=1)


def category_confusion(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean of the cross-entropies with the class as one of the source, and as one of the target.

    The category-level confusion of Zhang et al. (2019), for the logits [batch, 2 classes] of C^st. It is smallest where
    both get a probability of one half.
    """
    logits = in_single(logits)
    return 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits, labels + logits.shape[1] // 2))


def entropy(probabilities: Tensor) -> Tensor:
    """The entropy H of class probabilities, finite also at 0: [..., classes] -> [...]."""
    return -(probabilities * probabilities.clamp_min(1e-6).log()).sum(dim=-1)


def multi_kernel_mmd(source: Tensor, target: Tensor) -> Tensor:
    """The squared distance between the mean embeddings of two domains, from features [batch, d] of each.

    Long et al. (2015), Eq. (1), by their unbiased estimate of linear cost, on every image and the next one in the
    batch; the first follows the last. It may be negative. The kernel is the sum of five Gaussians whose variances are
    1/8, 1/4, 1/2, 1 and 2 times the mean squared distance between any two of the features, without gradient.
    """
    source, target = in_single(source), in_single(target)
    spread = 2 * torch.cat([source, target]).detach().var(dim=0, correction=0).sum()
    shares = 2.0 ** torch.arange(-3, 2, dtype=spread.dtype, device=spread.device)
    variances = shares * spread.clamp_min(torch.finfo(spread.dtype).tiny)

    def kernel(one: Tensor, other: Tensor) -> Tensor:
        distances = (one - other).square().sum(dim=1)
        return torch.exp(-distances / (2 * variances[:, None])).sum(dim=0)

    next_source, next_target = source.roll(-1, dims=0), target.roll(-1, dims=0)
    within = kernel(source, next_source) + kernel(target, next_target)
    return (within - kernel(source, next_target) - kernel(next_source, target)).mean()


def classifier_discrepancy(first: Tensor, second: Tensor) -> Tensor:
    """The mean over classes and images of |p_1 - p_2|, the probabilities of two classifiers, from their logits.

    Saito et al. (2018), Eq. (1).
    """
    return (in_single(first).softmax(dim=1) - in_single(second).softmax(dim=1)).abs().mean()


def class_balance(logits: Tensor) -> Tensor:
    """The mean over classes of -log of the batch's mean probability, smallest for equal predictions of all classes.

    The class balance term that Saito et al. (2018) add for large images, with the 1e-6 of their code.
    """
    return -(in_single(logits).softmax(dim=1).mean(dim=0) + 1e-6).log().mean()


def class_confusion(logits: Tensor, temperature: float) -> Tensor:
    """How much the predictions on a batch confuse each class with others: 0 to 1, from logits [batch, classes].

    Minimum class confusion, Jin et al. (2020), Section 3.2. C = P^T diag(w) P, where P are the probabilities at the
    temperature, and w the weights 1 + exp(-H) with mean 1, without gradient. After normalising the rows of C, this is
    1 minus the mean of its diagonal. Each row of P sums to 1, so the sums of C's rows are those of diag(w) P.
    """
    classes = (in_single(logits) / temperature).softmax(dim=1)
    weighted = classes * confidence_weights(classes)
    share = (weighted * classes).sum(dim=0) / weighted.sum(dim=0).clamp_min(torch.finfo(classes.dtype).tiny)
    return 1 - share.mean()


def confidence_weights(classes: Tensor) -> Tensor:
    """The weights 1 + exp(-H) of predictions [batch, classes], divided by their mean, without gradient: [batch, 1]."""
    weight = 1 + torch.exp(-entropy(classes).detach())
    return (weight / weight.mean())[:, None]


def tsallis_confusion(logits: Tensor, temperature: float, index: float) -> Tensor:
    """The Tsallis entropy of the predictions on a batch, balanced over classes, from logits [batch, classes].

    The regulariser of CST, Liu et al. (2021), in the form of the authors' code: (1 - mean over classes k of s_k) /
    (index - 1), where s_k is the sum over images i of w_i p_ik^index, divided by the sum of w_i p_ik. The weights w and
    the temperature are those of `class_confusion`, which it equals for index 2. The code has a sum over classes where
    this has the mean.
    """
    classes = (in_single(logits) / temperature).softmax(dim=1)
    weight = confidence_weights(classes)
    total = (weight * classes).sum(dim=0).clamp_min(torch.finfo(classes.dtype).tiny)
    share = (weight * classes.pow(index)).sum(dim=0) / total
    return (1 - share.mean()) / (index - 1)


def self_training(weak_logits: Tensor, strong_logits: Tensor, threshold: float) -> Tensor:
    """The cross-entropy of strong views with the classes that are predicted for weak views, from logits of both.

    FixMatch, Sohn et al. (2020), Eq. (4): the mean over all images of the batch, where images whose prediction is less
    confident than the threshold count as 0. The predictions on weak views have no gradient.
    """
    confidence, classes = in_single(weak_logits).detach().softmax(dim=1).max(dim=1)
    kept = (confidence >= threshold).to(confidence.dtype)
    return (kept * F.cross_entropy(in_single(strong_logits), classes, reduction="none")).mean()


def pair_loss(first: Tensor, second: Tensor, same: Tensor) -> Tensor:
    """The binary cross-entropy between p_i . q_j, for all pairs of predictions, and whether i and j are of one class.

    The BCE of ICON, Yue et al. (2023), with the 1e-7 of the authors' code. `first` and `second` are logits
    [batch, classes] of two views of the same images, with the probabilities p and q. `same` [batch, batch] is true for
    pairs that are taken to be of one class. The mean is over all pairs, also those of an image with itself.
    """
    p, q = in_single(first).softmax(dim=1), in_single(second).softmax(dim=1)
    agreement = (p[:, None] * q[None]).sum(dim=2)
    return -(torch.where(same, agreement, 1 - agreement) + 1e-7).log().mean()


def reverse_prediction_error(
    target: Tensor, pseudo_labels: Tensor, source: Tensor, labels: Tensor, classes: int
) -> Tensor:
    """How badly a linear classifier that is fitted to pseudo-labelled target features predicts the source: a scalar.

    The reverse step of CST, Liu et al. (2021), in the form of the authors' code: the classifier is ridge regression, in
    closed form, from features of length 1 to one-hot labels minus 1 / classes. The loss is its mean squared error on
    the source. `target` and `source` are features [batch, width], `pseudo_labels` and `labels` are classes [batch]. The
    gradient reaches the features of both domains.
    """
    ridge, precision = 1e-3, in_single(source).dtype

    def centred(wanted: Tensor) -> Tensor:
        return F.one_hot(wanted, classes).double() - 1 / classes

    # In double precision, which autocast leaves alone: the Gram matrix is nearly singular.
    target, source = F.normalize(target.double(), dim=1), F.normalize(source.double(), dim=1)
    gram = target @ target.T + ridge * torch.eye(len(target), dtype=target.dtype, device=target.device)
    fitted, _ = torch.linalg.solve_ex(gram, centred(pseudo_labels))
    return (source @ target.T @ fitted - centred(labels)).square().mean().to(precision)


def information_maximisation(logits: Tensor) -> Tensor:
    """The mean entropy of predictions minus the entropy of their mean, from logits [batch, classes].

    SHOT, Liang et al. (2020), Section 3.2: smallest where each prediction is certain and all classes are predicted
    equally often.
    """
    classes = in_single(logits).softmax(dim=1)
    return entropy(classes).mean() - entropy(classes.mean(dim=0))


def margin_disparity(
    source_logits: Tensor, target_logits: Tensor, source_rival: Tensor, target_rival: Tensor, margin: float
) -> Tensor:
    """-D_gamma, the negative margin disparity discrepancy: what the adversarial classifier (the rival) minimises.

    The combined cross-entropy of Zhang et al. (2019), Section 5.2, gamma = `margin`, between the logits of the rival
    and the decisions of the classifier, which have no gradient. The rival should agree on the source and disagree on
    the target: -log(1 - p) is written as a difference of log-sums, which is finite at p = 1.
    """
    agree = F.cross_entropy(in_single(source_rival), source_logits.argmax(dim=1))
    rival, decided = in_single(target_rival), target_logits.argmax(dim=1, keepdim=True)
    others = rival.scatter(1, decided, -torch.inf)
    return margin * agree + (rival.logsumexp(dim=1) - others.logsumexp(dim=1)).mean()


def adversarial(critic_map: Tensor) -> Tensor:
    """How far the critic is from taking each transported image for a real one: [batch].

    L_adv of TCM Appendix A.3.1 in the least-squares form of the CycleGAN code that the paper follows, where the paper
    prints logarithms: the mean over patches of (D(M(x)) - 1)^2.
    """
    return (in_single(critic_map) - 1).square().flatten(1).mean(dim=1)


def reconstruction(restored: Tensor, original: Tensor) -> Tensor:
    """The mean absolute difference of each image pair: [batch].

    L_cyc of TCM Appendix A.3.1 if `restored` was transported to the other domain and back, L_idt if it was
    transported into its own domain.
    """
    return (restored - original).abs().flatten(1).mean(dim=1)


def critic_error(critic_map: Tensor, truth: float) -> Tensor:
    """A part of L_d of TCM Appendix A.3.1, least squares: the mean over images for which the critic should say `truth`.

    L_d adds the error of real images, `truth` 1, and of transported ones, `truth` 0, whose mean over all k mechanisms
    is the paper's 1/k sum. The factor 1/2 is that of CycleGAN.
    """
    return 0.5 * (in_single(critic_map) - truth).square().mean()


def vae_loss(restored: Tensor, original: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """L_v, TCM Eq. (9), mean over the batch: -E log P(x | z) + KL(Q(z | x) || N(0, I)).

    The logarithm is missing in the paper. P(x | z) has variance 1 in every feature, so its negative logarithm is half
    the squared error, summed over the features, plus a constant.
    """
    mean, log_variance = in_single(mean), in_single(log_variance)
    error = 0.5 * (in_single(restored) - in_single(original)).square().sum(dim=-1)
    divergence = 0.5 * (log_variance.exp() + mean.square() - 1 - log_variance).sum(dim=-1)
    return (error + divergence).mean()


def proxy_loss(
    on_source: Tensor, on_transported_source: Tensor, on_target: Tensor, on_transported_target: Tensor
) -> Tensor:
    """-L_p, TCM Eq. (10), from logits: the discriminators' binary cross-entropy, real images = 1.

    D_s sees source images and transported target images, D_t target images and transported source images. The mean
    over all counterfactuals, [k, batch, 1], is the paper's 1/k sum. The discriminators minimise it; through a gradient
    reversal layer the backbone maximises it.
    """
    real = F.softplus(-on_source).mean() + F.softplus(-on_target).mean()
    return real + F.softplus(on_transported_source).mean() + F.softplus(on_transported_target).mean()
