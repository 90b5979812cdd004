"""The proxy function in a world where the truth is known: a linear-Gaussian causal model with the paper's graph.

    S -> U -> Z, X, X_hat, Y      Z -> X      X, X_hat -> Y

U is never observed and only its distribution depends on the domain S. h_y is solved from source data alone, and what
it is asked for is E[Y | do(X = x), S = target]. All figures are medians over random models: single draws mislead.
"""

import statistics
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from tcm.methods.tcm.proxy import LinearHeads, adjusted_logits, proxy_function, pseudo_inverse

MODELS = range(20)
FEW, MANY = 1_000, 100_000
LATENT, FEATURES, PROXY = 2, 3, 5  # x_hat has more dimensions than z, and z as many as u


class Sample(NamedTuple):
    z: Tensor
    x: Tensor
    x_hat: Tensor
    y: Tensor


@dataclass(frozen=True)
class CausalModel:
    u_to_z: Tensor
    u_to_x: Tensor
    z_to_x: Tensor
    u_to_proxy: Tensor
    x_to_y: Tensor
    u_to_y: Tensor
    proxy_to_y: Tensor
    offsets: dict[str, Tensor]  # of z, x, proxy and y
    mean_of_u: dict[str, Tensor]
    scale_of_u: dict[str, float]

    def sample(self, domain: str, count: int, generator: torch.Generator, do: Tensor | None = None) -> Sample:
        """Draws of a domain; with `do` X is set to that, and whatever would have made it does not matter."""

        def noise(size: int) -> Tensor:
            return torch.randn(count, size, generator=generator, dtype=torch.float64)

        u = self.mean_of_u[domain] + self.scale_of_u[domain] * noise(LATENT)
        z = u @ self.u_to_z.T + self.offsets["z"] + noise(LATENT)
        x = u @ self.u_to_x.T + z @ self.z_to_x.T + self.offsets["x"] + noise(FEATURES)
        x = x if do is None else do.expand_as(x)
        x_hat = u @ self.u_to_proxy.T + self.offsets["proxy"] + noise(PROXY)
        y = x @ self.x_to_y.T + u @ self.u_to_y.T + x_hat @ self.proxy_to_y.T + self.offsets["y"] + noise(1)
        return Sample(z, x, x_hat, y)

    def effect(self, x: Tensor, domain: str) -> Tensor:
        """E[Y | do(X = x), S = domain]: [batch, 1]."""
        u = self.mean_of_u[domain]
        x_hat = self.u_to_proxy @ u + self.offsets["proxy"]
        return x @ self.x_to_y.T + self.u_to_y @ u + self.proxy_to_y @ x_hat + self.offsets["y"]

    def bias_of_regression(self, domain: str) -> Tensor:
        """How far the coefficients of Y regressed on X are from those of X -> Y: Cov(Y's other causes, X) / Var(X)."""
        of_u = self.u_to_x + self.z_to_x @ self.u_to_z  # all ways from u to x
        spread = self.scale_of_u[domain] ** 2
        identity = torch.eye(FEATURES, dtype=torch.float64)
        variance = spread * of_u @ of_u.T + self.z_to_x @ self.z_to_x.T + identity
        return spread * (self.u_to_y + self.proxy_to_y @ self.u_to_proxy) @ of_u.T @ torch.linalg.inv(variance)


def random_model(seed: int) -> tuple[CausalModel, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    # Diagonals that are not small: completeness, the theorem's condition, without which no data suffice.
    model = CausalModel(
        u_to_z=torch.eye(LATENT, dtype=torch.float64) + 0.3 * normal(LATENT, LATENT),
        u_to_x=normal(FEATURES, LATENT),
        z_to_x=0.3 * normal(FEATURES, LATENT),
        u_to_proxy=normal(PROXY, LATENT),
        x_to_y=normal(1, FEATURES),
        u_to_y=normal(1, LATENT),
        proxy_to_y=0.3 * normal(1, PROXY),
        offsets={name: normal(size) for name, size in (("z", LATENT), ("x", FEATURES), ("proxy", PROXY), ("y", 1))},
        mean_of_u={"source": normal(LATENT), "target": normal(LATENT)},
        scale_of_u={"source": 1.0, "target": 1.5},
    )
    return model, generator


def regression(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Least squares: coefficients [outputs, inputs], the smallest where there are several, and offsets [outputs]."""
    mean, goal = inputs.mean(dim=0), outputs.mean(dim=0)
    moments = (inputs - mean).T @ (inputs - mean)
    solution = (torch.linalg.pinv(moments, rtol=1e-10, hermitian=True) @ ((inputs - mean).T @ (outputs - goal))).T
    return solution, goal - solution @ mean


def fitted_heads(z: Tensor, sample: Sample) -> LinearHeads:
    """f_y and f_xhat of Eq. (6) by least squares."""
    inputs = torch.cat([z, sample.x], dim=1)
    (of_y, b1), (of_proxy, b2) = regression(inputs, sample.y), regression(inputs, sample.x_hat)
    w1, w2 = of_y.tensor_split([z.shape[1]], dim=1)
    w3, w4 = of_proxy.tensor_split([z.shape[1]], dim=1)
    return LinearHeads(w1, w2, b1, w3, w4, b2)


def size(error: Tensor) -> float:
    return error.square().mean().sqrt().item()


@cache
def median_errors(count: int) -> dict[str, float]:
    """What each way of estimating is wrong by, the median over the models."""
    found = [errors(seed, count) for seed in MODELS]
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def errors(seed: int, count: int) -> dict[str, float]:
    model, generator = random_model(seed)
    source, target = (model.sample(domain, count, generator) for domain in ("source", "target"))
    plain, plain_offset = regression(source.x, source.y)
    h_y = proxy_function(fitted_heads(source.z, source))
    mixture = torch.randn(LATENT, FEATURES, generator=generator, dtype=torch.float64)
    bent, straight = (
        proxy_function(fitted_heads(z, source)) for z in (torch.tanh(source.x @ mixture.T), source.x @ mixture.T)
    )
    truth = model.effect(target.x[:100], "target")
    return {
        "plain": size(plain - model.x_to_y),
        "plain, bias taken off": size(plain - model.bias_of_regression("source") - model.x_to_y),
        "h_y": size(h_y.of_x - model.x_to_y),
        "effect, plain": size(target.x[:100] @ plain.T + plain_offset - truth),
        "effect, h_y": size(adjusted_logits(h_y, target.x[:100], target.x_hat.mean(dim=0)) - truth),
        "effect, h_y with the source's proxies": size(
            adjusted_logits(h_y, target.x[:100], source.x_hat.mean(dim=0)) - truth
        ),
        "z = tanh(M x)": size(bent.of_x - model.x_to_y),
        "z = M x": size(straight.of_x - model.x_to_y),
    }


def test_plain_regression_is_wrong_by_a_known_amount_however_many_the_data():
    few, many = median_errors(FEW), median_errors(MANY)
    assert 0.2 < few["plain"] < 0.4
    assert abs(few["plain"] - many["plain"]) < 0.02
    assert few["plain, bias taken off"] < 0.06
    assert many["plain, bias taken off"] < 0.006


def test_the_proxy_function_finds_the_causal_coefficients_to_sampling_error():
    few, many = median_errors(FEW), median_errors(MANY)
    assert few["h_y"] < 0.09
    assert many["h_y"] < 0.009
    assert 5 < few["h_y"] / many["h_y"] < 20  # the square root of a hundred times the data


def test_the_effect_is_what_an_intervention_in_the_target_shows():
    model, generator = random_model(0)
    x = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    shown = model.sample("target", MANY, generator, do=x).y.mean(dim=0)
    assert size(shown - model.effect(x, "target")) < 0.05


def test_solved_from_the_source_it_tells_what_an_intervention_does_in_the_target():
    few, many = median_errors(FEW), median_errors(MANY)
    assert many["effect, plain"] > 1
    assert few["effect, h_y"] < 0.45
    assert many["effect, h_y"] < 0.045
    # P(x_hat | S) is what carries it over: it must be the target's.
    assert many["effect, h_y with the source's proxies"] > 0.5


def test_a_z_that_is_a_function_of_x_identifies_nothing():
    few, many = median_errors(FEW), median_errors(MANY)
    for z in ("z = tanh(M x)", "z = M x"):
        assert many[z] > 0.15
        assert many[z] > 0.5 * few[z]  # more data do not help


def test_where_z_is_linear_in_x_equal_heads_disagree_on_the_effect():
    model, generator = random_model(0)
    source = model.sample("source", FEW, generator)
    mixture = torch.randn(LATENT, FEATURES, generator=generator, dtype=torch.float64)
    heads = fitted_heads(source.x @ mixture.T, source)
    moved = torch.ones_like(heads.w1)
    others = heads._replace(w1=heads.w1 + moved, w2=heads.w2 - moved @ mixture)
    z = source.x @ mixture.T
    torch.testing.assert_close(z @ heads.w1.T + source.x @ heads.w2.T, z @ others.w1.T + source.x @ others.w2.T)
    assert size(proxy_function(heads).of_x - proxy_function(others).of_x) > 0.1


def test_proxies_that_share_content_with_x_shift_the_effect_by_a_known_amount():
    """Counterfactuals keep the image's class, so X -> X_hat, which the graph excludes. h_y at E[x_hat] is then wrong by
    W1 W3^+ times that link; at the image's own x_hat the two errors cancel, and it is E[Y | X, U], not an effect."""
    model, generator = random_model(3)
    model = replace(model, proxy_to_y=torch.zeros_like(model.proxy_to_y))
    source = model.sample("source", MANY, generator)
    link = torch.randn(PROXY, FEATURES, generator=generator, dtype=torch.float64)
    source = source._replace(x_hat=source.x_hat + source.x @ link.T)
    h_y = proxy_function(fitted_heads(source.z, source))
    assert size(h_y.of_x - model.x_to_y) > 0.3
    assert size(h_y.of_x + h_y.of_proxy @ link - model.x_to_y) < 0.03


def exact_case(classes: int) -> tuple[LinearHeads, Tensor, Tensor, Tensor]:
    """Heads, z, x, and the x_hat that f_xhat says without error."""
    generator = torch.Generator().manual_seed(7)
    shapes = [(classes, 4), (classes, 6), (classes,), (9, 4), (9, 6), (9,)]
    heads = LinearHeads(*(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes))
    z, x = (torch.randn(50, width, generator=generator, dtype=torch.float64) for width in (4, 6))
    return heads, z, x, z @ heads.w3.T + x @ heads.w4.T + heads.b2


def test_z_is_recovered_exactly_and_h_y_is_f_y():
    heads, z, x, x_hat = exact_case(classes=3)
    torch.testing.assert_close((x_hat - x @ heads.w4.T - heads.b2) @ pseudo_inverse(heads.w3).T, z, rtol=0, atol=1e-12)
    f_y = z @ heads.w1.T + x @ heads.w2.T + heads.b1
    torch.testing.assert_close(adjusted_logits(proxy_function(heads), x, x_hat), f_y, rtol=0, atol=1e-12)


def test_the_printed_offset_of_t_y_gives_the_wrong_answer():
    """Appendix A.2 prints b_1 where b_2 must stand. It fits at all only where there are as many classes as features."""
    heads, z, x, x_hat = exact_case(classes=9)
    f_y = z @ heads.w1.T + x @ heads.w2.T + heads.b1
    with_b1, with_b2 = (
        (x_hat - x @ heads.w4.T - offset) @ pseudo_inverse(heads.w3).T @ heads.w1.T + x @ heads.w2.T + heads.b1
        for offset in (heads.b1, heads.b2)
    )
    assert size(with_b2 - f_y) < 1e-12
    off_by = heads.w1 @ pseudo_inverse(heads.w3) @ (heads.b2 - heads.b1)
    torch.testing.assert_close(with_b1 - f_y, off_by.expand(50, 9))
    assert size(off_by) > 0.1
