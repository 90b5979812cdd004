"""The layers are those of TCM Appendix A.3.2."""

import math

import torch
from torch import nn

from tcm.nn.losses import vae_loss
from tcm.nn.vae import VAEConfig, sampled


def described(network: nn.Sequential) -> list[str]:
    return [
        f"Linear({layer.in_features},{layer.out_features})" if isinstance(layer, nn.Linear) else type(layer).__name__
        for layer in network
    ]


def test_the_networks_are_the_papers():
    vae = VAEConfig().build(2048)
    assert described(vae.encoder) == ["Linear(2048,1200)", "ReLU", "Linear(1200,600)", "ReLU", "Linear(600,200)"]
    assert described(vae.decoder) == ["Linear(100,600)", "ReLU", "Linear(600,2048)", "ReLU"]


def test_parameter_counts():
    sizes = {name: parameter.numel() for name, parameter in VAEConfig().build(2048).named_parameters()}
    assert sum(size for name, size in sizes.items() if name.endswith("weight")) == 4_586_400  # 4.586 M
    assert sum(sizes.values()) == 4_586_400 + 1200 + 600 + 200 + 600 + 2048


def test_dropout_stands_where_the_release_has_it():
    encoder = VAEConfig(dropout=0.3).build(64).encoder
    assert described(encoder) == [
        *("Linear(64,1200)", "ReLU", "Dropout", "Linear(1200,600)", "ReLU", "Linear(600,200)"),
    ]
    assert described(VAEConfig(encoder=(), dropout=0.3).build(64).encoder) == ["Linear(64,200)"]  # no second layer


def test_weights_start_from_kaimings_normal():
    vae = VAEConfig().build(2048)
    for layer in (*vae.encoder, *vae.decoder):
        if isinstance(layer, nn.Linear):
            assert abs(layer.weight.std().item() / math.sqrt(2 / layer.in_features) - 1) < 0.02
            assert not layer.bias.any()


def test_shapes():
    vae = VAEConfig(latent=3, encoder=(8,), decoder=(8, 9)).build(5)
    mean, log_variance = vae.encode(torch.rand(4, 5))
    assert mean.shape == log_variance.shape == (4, 3)
    assert vae.decode(mean).shape == (4, 5)
    assert described(vae.decoder) == ["Linear(3,8)", "ReLU", "Linear(8,9)", "ReLU", "Linear(9,5)", "ReLU"]


def test_noise_is_gaussian():
    torch.manual_seed(0)
    mean, log_variance = torch.full((200_000,), 2.0), torch.full((200_000,), math.log(9.0))
    standard = (sampled(mean, log_variance) - 2) / 3
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert abs((standard**power).mean().item() - moment) < 0.05


def test_it_learns_what_its_features_have_in_common():
    torch.manual_seed(0)
    features = torch.relu(torch.randn(512, 2) @ torch.randn(2, 12)) * 3
    vae = VAEConfig(latent=4, encoder=(32,), decoder=(32,)).build(12)
    adam = torch.optim.Adam(vae.parameters(), lr=3e-3)
    for _ in range(400):
        mean, log_variance = vae.encode(features)
        loss = vae_loss(vae.decode(sampled(mean, log_variance)), features, mean, log_variance)
        adam.zero_grad()
        loss.backward()
        adam.step()
    error = (vae.decode(vae.encode(features)[0]) - features).square().sum() / (
        features - features.mean(dim=0)
    ).square().sum()
    assert error < 0.15


def test_its_loss_is_in_single_precision_whatever_is_around():
    torch.manual_seed(0)
    parts = [torch.randn(4, width).bfloat16() for width in (5, 5, 3, 3)]
    found = vae_loss(*parts)
    assert found.dtype == torch.float32
    assert torch.equal(found, vae_loss(*(part.float() for part in parts)))
