"""Train the two linear heads of TCM Eq. (6) and predict with the proxy function h_y of TCM Eq. (7).

    python examples/proxy_function.py

A latent z and the features x decide the label y. Training knows z; later it is hidden, but it leaves a trace in the
proxy x_hat. h_y solves the heads for z, and so predicts from x and x_hat what f_y predicts from z and x.
"""

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from tcm.methods.tcm.proxy import ProxyHeads, adjusted_logits, proxy_function

CLASSES, FEATURES, LATENT = 4, 8, 2


def main(steps: int = 200) -> None:
    """Train the heads and compare predictions with and without z.

    Args:
        steps: Training steps.
    """
    torch.manual_seed(0)
    world = ProxyHeads(CLASSES, FEATURES, LATENT).requires_grad_(False)  # where the data comes from
    heads = ProxyHeads(CLASSES, FEATURES, LATENT)
    optimizer = torch.optim.Adam(heads.parameters(), lr=0.05)

    def draw(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        z, x = 3 * torch.randn(count, LATENT), torch.randn(count, FEATURES)
        x_hat = world.f_xhat(z, x) + 0.1 * torch.randn(count, FEATURES)
        return z, x, x_hat, world.f_y(z, x).argmax(dim=1)

    for _ in range(steps):
        z, x, x_hat, y = draw(64)
        loss = F.cross_entropy(heads.f_y(z, x), y) + F.mse_loss(heads.f_xhat(z, x), x_hat)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    z, x, x_hat, y = draw(2000)
    with torch.no_grad():
        h_y = proxy_function(heads.matrices())  # solved once for all images
        logits = {
            "f_y(z, x), with z": heads.f_y(z, x),
            "f_y(0, x), without z": heads.f_y(torch.zeros_like(z), x),
            "h_y(x, x_hat), without z": adjusted_logits(h_y, x, x_hat),
        }
    for name, found in logits.items():
        print(f"{name}: {(found.argmax(dim=1) == y).float().mean():.1%} right")


if __name__ == "__main__":
    tyro.cli(main)
