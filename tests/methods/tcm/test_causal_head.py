import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.methods.tcm import causal_head
from tcm.methods.tcm.causal_head import CausalHead, HeadConfig, HeadLosses
from tcm.methods.tcm.head_diagnostics import head_diagnostics
from tcm.methods.tcm.proxy import ProxyWeights, adjusted_logits, proxy_function
from tcm.methods.tcm.views import Views
from tcm.nn.vae import VAEConfig

FEATURES, CLASSES, LATENT, COUNT, K = 6, 3, 2, 5, 4
LABELS = torch.tensor([2, 0, 1, 1, 0])
both_roles = pytest.mark.parametrize("swapped", [False, True])
every_weighting = pytest.mark.parametrize("weighting", ["gaussian", "uniform", "mean"])


def built(**settings) -> CausalHead:
    torch.manual_seed(0)
    vae = VAEConfig(latent=LATENT, encoder=(8,), decoder=(8,))
    head = CausalHead(FEATURES, CLASSES, HeadConfig(vae=vae, **settings))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # biases that are 0 would hide what they do
    return head


def random_views(seed: int = 1) -> Views:
    """K counterfactuals of a source image and one less of a target image; features are not negative."""
    generator = torch.Generator().manual_seed(seed)
    return Views(*(torch.rand(views, COUNT, FEATURES, generator=generator).requires_grad_() for views in (1 + K, K)))


def roles(features: Views, swapped: bool = False) -> tuple[Tensor, Tensor]:
    """x and x_hat of the source: as in the paper, or as in the authors' code."""
    own, made = features.source[:1], features.source[1:]
    return (made, own) if swapped else (own, made)


def solved(head: CausalHead, features: Views, swapped: bool = False) -> HeadLosses:
    torch.manual_seed(7)
    return head(*roles(features, swapped), features.target[1:], LABELS)


def noisy_z(head: CausalHead, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, log variance and the z that `solved` draws."""
    mean, log_variance = head.vae.encoder(x).chunk(2, dim=-1)
    torch.manual_seed(7)
    return mean, log_variance, mean + (0.5 * log_variance).exp() * torch.randn(mean.shape)


def h_y_by_hand(head: CausalHead, x: Tensor, x_hat: Tensor, ridge: float = 0.0) -> Tensor:
    """Eq. (7): z is solved from f_xhat by least squares and put into f_y."""
    (w1, w2), (w3, w4) = (
        (layer.weight[:, :LATENT], layer.weight[:, LATENT:]) for layer in (head.heads.to_label, head.heads.to_proxy)
    )
    rest = x_hat - x @ w4.T - head.heads.to_proxy.bias
    z = rest @ w3 @ torch.linalg.inv(w3.T @ w3 + ridge * torch.eye(LATENT))
    return z @ w1.T + x @ w2.T + head.heads.to_label.bias


def average_by_hand(x_hat: Tensor, weighting: str, seen: Tensor | None = None) -> Tensor:
    """The proxy of each image, where `seen` is what the moments were made of."""
    seen = (x_hat if seen is None else seen).flatten(0, -2)
    mean = seen.mean(dim=0)
    if weighting == "uniform":
        return x_hat.mean(dim=0)
    if weighting == "mean":
        return mean.expand(x_hat.shape[1:])
    variance = seen.var(dim=0, correction=0).mean()
    density = torch.exp(-(x_hat - mean).square().sum(dim=-1) / (2 * variance))
    return (density.unsqueeze(-1) * x_hat).sum(dim=0) / density.sum(dim=0).unsqueeze(-1)


def cross_entropy(logits: Tensor) -> Tensor:
    """The mean over views [views, batch, classes] of each one's cross-entropy."""
    return torch.stack([F.cross_entropy(view, LABELS) for view in logits]).mean()


@both_roles
@every_weighting
def test_the_terms_are_their_definitions(swapped: bool, weighting):
    head, features = built(weighting=weighting), random_views()
    found = solved(head, features, swapped)
    x, x_hat = roles(features, swapped)
    mean, log_variance, z = noisy_z(head, x)
    f_y, f_xhat = (layer(torch.cat([z, x], dim=-1)) for layer in (head.heads.to_label, head.heads.to_proxy))
    proxy = average_by_hand(x_hat, weighting)
    error = (head.vae.decoder(z) - x).square().sum(dim=-1) / 2
    divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum(dim=-1) / 2
    assert list(found.terms) == ["label", "adjusted", "proxy", "vae"]
    torch.testing.assert_close(found.terms["label"], cross_entropy(f_y))
    torch.testing.assert_close(found.terms["adjusted"], cross_entropy(h_y_by_hand(head, x, proxy)))
    pairs = [(said - true).square().mean() for said in f_xhat for true in x_hat]
    assert len(pairs) == K
    torch.testing.assert_close(found.terms["proxy"], torch.stack(pairs).mean())
    torch.testing.assert_close(found.terms["vae"], (error + divergence).mean())


@both_roles
@every_weighting
def test_adjusted_logits_are_those_of_x(swapped: bool, weighting):
    head, features = built(weighting=weighting), random_views()
    found = solved(head, features, swapped)
    x, x_hat = roles(features, swapped)
    proxy = average_by_hand(x_hat, weighting)
    assert found.logits.shape == (len(x), COUNT, CLASSES)
    for said, view in zip(found.logits, x, strict=True):
        torch.testing.assert_close(said, h_y_by_hand(head, view, proxy))
    on_target = adjusted_logits(found.h_y, features.target[0], proxy)
    torch.testing.assert_close(on_target, h_y_by_hand(head, features.target[0], proxy))


def reached(head: CausalHead, features: Views, loss: Tensor) -> set[str]:
    """Parameters and views that a gradient comes to, by name."""
    named = {**dict(head.named_parameters()), "source": features.source, "target": features.target}
    found = torch.autograd.grad(loss, [*named.values()], allow_unused=True, retain_graph=True)
    gradients = {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}
    names = {name for name, gradient in gradients.items() if name not in ("source", "target") and gradient.any()}
    for side in {"source", "target"} & gradients.keys():
        if gradients[side][0].any():
            names.add(f"{side} images")
        if gradients[side][1:].any():
            names.add(f"{side} counterfactuals")
    return names


@both_roles
@every_weighting
def test_who_learns_from_which_term(swapped: bool, weighting):
    head, features = built(weighting=weighting), random_views()
    terms = solved(head, features, swapped).terms
    learners = {name: reached(head, features, term) for name, term in terms.items()}
    x, x_hat = "source images", "source counterfactuals"
    if swapped:
        x, x_hat = x_hat, x
    assert learners == {
        "label": {"heads.to_label.weight", "heads.to_label.bias", x},
        "adjusted": {x} if weighting == "mean" else {x, x_hat},
        "proxy": {"heads.to_proxy.weight", "heads.to_proxy.bias"},
        "vae": {name for name, _ in head.named_parameters() if name.startswith("vae.")},
    }


def test_the_encoder_learns_from_what_the_decoder_makes_of_its_draw():
    head, features = built(), random_views()
    x, encoder = features.source[:1].detach(), list(head.vae.encoder.parameters())
    mean, log_variance, z = noisy_z(head, x)
    error = (head.vae.decoder(z) - x).square().sum(dim=-1) / 2
    divergence = (log_variance.exp() + mean.square() - 1 - log_variance).sum(dim=-1) / 2
    expected = torch.autograd.grad((error + divergence).mean(), encoder)
    found = torch.autograd.grad(solved(head, features).terms["vae"], encoder)
    for ours, its in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, its)


def test_adjusted_logits_pass_a_gradient_to_the_features_and_not_to_the_heads():
    head, features = built(), random_views()
    found = solved(head, features)
    assert reached(head, features, found.logits.square().sum()) == {"source images", "source counterfactuals"}
    on_target = adjusted_logits(found.h_y, features.target[0], features.target[1])
    assert reached(head, features, on_target.square().sum()) == {"target images", "target counterfactuals"}


def test_z_is_drawn_in_training_and_is_its_mean_in_a_prediction():
    head, features = built(), random_views()
    torch.manual_seed(1)
    first, second = (head(*roles(features), features.target[1:], LABELS).terms for _ in range(2))
    assert first["label"] != second["label"]
    assert first["adjusted"] == second["adjusted"]  # h_y has no z
    x = features.target[0]
    assert torch.equal(head.predict_alone(x), head.predict_alone(x))


@both_roles
def test_a_step_takes_in_the_proxies_of_both_domains(swapped: bool):
    head, features = built(), random_views()
    solved(head, features, swapped)
    _, x_hat = roles(features, swapped)
    for weights, seen in ((head.source, x_hat), (head.target, features.target[1:])):
        assert weights.count == seen[..., 0].numel()
        torch.testing.assert_close(weights.mean, seen.detach().double().mean(dim=(0, 1)))


def test_a_step_forgets_by_its_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(causal_head, "MEMORY", 3)
    head, first, second = built(), random_views(1), random_views(2)
    solved(head, first)
    solved(head, second)
    for weights, before, after in (
        (head.source, first.source[1:], second.source[1:]),
        (head.target, first.target[1:], second.target[1:]),
    ):
        count = after[..., 0].numel()
        expected = (3 * before.mean(dim=(0, 1)) + after.sum(dim=(0, 1))) / (3 + count)
        torch.testing.assert_close(weights.mean.float(), expected.detach())
        assert weights.count == 3 + count


@pytest.mark.parametrize("memory", [10, 24, 100])
def test_with_a_memory_the_past_counts_as_that_many_at_most(memory: int):
    torch.manual_seed(0)
    weights = ProxyWeights(FEATURES)
    past, now = 3 * torch.randn(24, FEATURES).double() + 5, torch.randn(2, 8, FEATURES).double()
    weights.update(past, memory)
    assert weights.count == 24  # the first has no past
    weights.update(now, memory)
    share = min(memory, 24) / (min(memory, 24) + 16)
    now = now.flatten(0, 1)
    mean = share * past.mean(dim=0) + (1 - share) * now.mean(dim=0)
    around = [(part - mean).square().mean() for part in (past, now)]
    torch.testing.assert_close(weights.mean, mean)
    torch.testing.assert_close(weights.variance, share * around[0] + (1 - share) * around[1])
    assert weights.count == min(memory, 24) + 16


def test_with_a_memory_the_moments_follow_a_change_that_they_would_average_away_without():
    short, exact = ProxyWeights(1), ProxyWeights(1)
    values = torch.tensor([0.0] * 50 + [1.0] * 50).view(100, 1, 1)
    for value in values:
        short.update(value, 4)
        exact.update(value)
    assert short.mean.item() == pytest.approx(1 - 0.8**50)  # 4 of 5 are kept at every step
    assert short.count == 5
    assert exact.mean.item() == pytest.approx(0.5)
    assert exact.variance.item() == pytest.approx(0.25)
    assert exact.count == 100


@both_roles
def test_e_of_x_hat_has_no_share_in_what_is_said(swapped: bool):
    shares = {
        weighting: solved(built(weighting=weighting), random_views(), swapped).share.item()
        for weighting in ("gaussian", "uniform", "mean")
    }
    assert shares["mean"] < 1e-9
    assert shares["gaussian"] > 0.01
    assert shares["uniform"] > 0.01


def test_the_share_is_that_of_the_variance_that_comes_from_x_hat():
    head, features = built(weighting="uniform"), random_views()
    found = solved(head, features).share
    x, x_hat = features.source[0], features.source[1:].mean(dim=0)
    logits, without = h_y_by_hand(head, x, x_hat), h_y_by_hand(head, x, torch.zeros_like(x_hat))
    expected = (logits - without).var(dim=0).sum() / logits.var(dim=0).sum()
    torch.testing.assert_close(found, expected.detach())
    assert not found.requires_grad


@every_weighting
@pytest.mark.parametrize("ridge", [0.0, 2.0])
def test_predictions_are_h_y_with_the_targets_proxies(weighting, ridge: float):
    head, seen, features = built(weighting=weighting, ridge=ridge), random_views(2), random_views(3)
    solved(head, seen)  # gives the two domains different moments
    x, x_hat = features.target[0], features.target[1:]
    h_y = proxy_function(head.heads.constants(), ridge)
    found = head.solved().predict(x, x_hat)
    torch.testing.assert_close(found, adjusted_logits(h_y, x, head.target.average(x_hat, weighting)))
    proxy = average_by_hand(x_hat, weighting, seen.target[1:])
    torch.testing.assert_close(found, h_y_by_hand(head, x, proxy, ridge))
    for other in ("gaussian", "uniform", "mean"):
        proxy = average_by_hand(x_hat, other, seen.target[1:])
        torch.testing.assert_close(head.solved().predict(x, x_hat, other), h_y_by_hand(head, x, proxy, ridge))


@pytest.mark.parametrize("ridge", [0.0, 2.0])
def test_in_a_hurry_e_of_x_hat_stands_for_every_proxy(ridge: float):
    head, x = built(ridge=ridge), random_views(3).target[0]
    head.target.update(torch.rand(30, FEATURES))
    head.source.update(torch.rand(30, FEATURES) + 1)
    found = head.solved().predict_with_mean(x)
    torch.testing.assert_close(found, h_y_by_hand(head, x, head.target.mean.float(), ridge))
    assert found.dtype == torch.float32
    alike = built(weighting="mean", ridge=ridge)
    alike.load_state_dict(head.state_dict())
    torch.testing.assert_close(alike.solved().predict(x, torch.rand(K, COUNT, FEATURES)), found)


def test_predictions_under_autocast_keep_the_proxies_in_single_precision():
    head, features = built(), random_views(3)
    head.target.update(features.target[1:])
    x, x_hat = (part.bfloat16() for part in (features.target[0], features.target[1:]))
    found = head.solved()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(found.predict(x, x_hat), found.predict(x.float(), x_hat.float()))
        assert torch.equal(found.predict_with_mean(x), found.predict_with_mean(x.float()))


def test_evaluation_mode_solves_h_y_once_for_all_predictions(monkeypatch: pytest.MonkeyPatch):
    head, x = built(ridge=2.0), random_views().target[0]
    learning = head.solved().h_y
    head.eval()
    with monkeypatch.context() as patch:
        patch.setattr(causal_head, "proxy_function", None)
        for _ in range(2):
            found = head.solved()
            assert all(torch.equal(ours, its) for ours, its in zip(found.h_y, learning, strict=True))
            torch.testing.assert_close(found.predict_with_mean(x), h_y_by_hand(head, x, torch.zeros(FEATURES), 2.0))


def test_the_solved_h_y_is_never_that_of_other_weights():
    head, other, x = built().eval(), built().train(), random_views().target[0]
    with torch.no_grad():
        other.heads.to_proxy.weight.mul_(2)
    expected = other.solved().predict_with_mean(x)
    assert not torch.allclose(head.solved().predict_with_mean(x), expected)
    torch.testing.assert_close(other.eval().solved().predict_with_mean(x), expected)
    head.load_state_dict(other.state_dict())
    torch.testing.assert_close(head.solved().predict_with_mean(x), expected)
    assert not {"of_proxy", "of_x", "offset"} & set(head.state_dict())  # older models can be loaded


def test_alone_the_head_is_f_y_at_the_mean_of_z():
    head, x = built(), random_views().target[0]
    mean = head.vae.encoder(x)[:, :LATENT]
    torch.testing.assert_close(head.predict_alone(x), head.heads.to_label(torch.cat([mean, x], dim=1)))


def test_the_ridge_reaches_the_loss():
    features = random_views()
    plain, ridged = (solved(built(ridge=ridge), features).terms["adjusted"] for ridge in (0.0, 2.0))
    proxy = average_by_hand(features.source[1:], "gaussian")
    expected = cross_entropy(h_y_by_hand(built(), features.source[:1], proxy, 2.0))
    torch.testing.assert_close(ridged, expected)
    assert (plain - ridged).abs() > 1e-3


def test_diagnostics_are_those_of_the_heads():
    head = built()
    found, expected = head.diagnostics(), head_diagnostics(head.heads.constants())
    assert found == {
        "head/norm": expected.norm,
        "head/direct_norm": expected.direct_norm,
        "head/largest": expected.singular_values[0],
        "head/smallest": expected.singular_values[-1],
        "head/lost": 0,
    }
    assert built(ridge=2.0).diagnostics()["head/norm"] < found["head/norm"]


def test_diagnostics_by_hand():
    head = built()
    with torch.no_grad():
        head.heads.to_proxy.weight[:, :LATENT] = torch.eye(FEATURES, LATENT) * torch.tensor([4.0, 0.0])
        head.heads.to_label.weight[:, :LATENT] = torch.tensor([[3.0, 9.0], [4.0, 9.0], [0.0, 9.0]])
        head.heads.to_label.weight[:, LATENT:] = torch.eye(CLASSES, FEATURES)
    # W3^+ is 1/4 in its first direction and nothing in the other, so W1 W3^+ has one column (3, 4, 0) / 4.
    assert head.diagnostics() == pytest.approx(
        {"head/norm": 1.25, "head/direct_norm": 3**0.5, "head/largest": 4.0, "head/smallest": 0.0, "head/lost": 1}
    )


def test_a_checkpoint_keeps_what_is_known_of_the_proxies():
    head, features = built(), random_views()
    solved(head, features)
    other = built()
    other.load_state_dict(head.state_dict())
    x, x_hat = features.target[0], features.target[1:]
    assert torch.equal(other.solved().predict(x, x_hat), head.solved().predict(x, x_hat))
    assert torch.equal(other.source.mean, head.source.mean)


def test_parameter_counts_are_the_papers():
    head = CausalHead(2048, 65, HeadConfig())
    sizes = {name: parameter.numel() for name, parameter in head.named_parameters() if parameter.ndim == 2}
    vae = sum(size for name, size in sizes.items() if name.startswith("vae."))
    assert (vae, sizes["heads.to_proxy.weight"]) == (4_586_400, 4_399_104)
    assert sizes["heads.to_label.weight"] == 65 * 2148
