import math

import torch

from tcm.losses import domain_confusion, proxy_loss, vae_loss
from tcm.nn.heads import reverse_gradient


def test_domain_confusion_is_log_two_when_the_discriminator_knows_nothing():
    assert math.isclose(domain_confusion(torch.zeros(3, 1), torch.zeros(5, 1)).item(), math.log(2), rel_tol=1e-6)


def test_domain_confusion_falls_when_source_scores_high_and_target_low():
    right = domain_confusion(torch.full((3, 1), 4.0), torch.full((5, 1), -4.0))
    wrong = domain_confusion(torch.full((3, 1), -4.0), torch.full((5, 1), 4.0))
    assert right < 0.02 < 3 < wrong


def test_the_vae_loss_is_half_the_squared_error_and_the_divergence():
    zeros = torch.zeros(2, 3)
    assert vae_loss(zeros, zeros, zeros, zeros) == 0
    assert vae_loss(torch.full((2, 5), 2.0), torch.zeros(2, 5), zeros, zeros) == 10  # 5 features x 2^2 / 2
    mean, log_variance = torch.randn(4, 3), torch.randn(4, 3)
    q = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    p = torch.distributions.Normal(torch.zeros(4, 3), torch.ones(4, 3))
    expected = torch.distributions.kl_divergence(q, p).sum(dim=1).mean()
    torch.testing.assert_close(vae_loss(torch.zeros(4, 5), torch.zeros(4, 5), mean, log_variance), expected)


def test_the_proxy_loss_is_equation_10_with_its_sign_turned():
    x_s, x_hat_s, x_t, x_hat_t = (torch.randn(*shape, 1).double() for shape in ((6,), (3, 6), (5,), (3, 5)))
    by_image = torch.sigmoid(x_s).log().mean() + torch.sigmoid(x_t).log().mean()
    for logits in (x_hat_s, x_hat_t):
        by_image = by_image + sum((1 - torch.sigmoid(one)).log().mean() for one in logits) / 3
    torch.testing.assert_close(proxy_loss(x_s, x_hat_s, x_t, x_hat_t), -by_image)
    nothing = torch.zeros(2, 1)
    assert math.isclose(proxy_loss(nothing, nothing, nothing, nothing).item(), 4 * math.log(2), rel_tol=1e-6)


def test_behind_the_reversal_the_features_climb_what_the_discriminators_descend():
    d_s, d_t = torch.tensor(1.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    made = torch.full((2, 3, 1), 2.0, requires_grad=True)
    reversed_made = reverse_gradient(made, 1.0)
    real = torch.ones(3, 1)
    proxy_loss(d_s * real, d_t * reversed_made, d_t * real, d_s * reversed_made).backward()
    assert made.grad is not None
    assert (made.grad < 0).all()  # a descent step raises the scores of the counterfactuals: they look more real
    assert d_t.grad is not None
    assert d_t.grad > 0  # while the discriminator lowers them
