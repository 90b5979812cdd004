import pytest
import torch

from tcm.methods.tcm.head_diagnostics import HeadMetrics, head_diagnostics, head_metrics, head_remarks, proxy_share
from tcm.methods.tcm.proxy import ProxyHeads, proxy_function


def test_the_share_of_the_proxies():
    torch.manual_seed(0)
    h_y = proxy_function(ProxyHeads(classes=3, features=4, latent=2).constants())
    x, x_hat = torch.randn(2000, 4), torch.randn(2000, 4)
    of_proxy, of_x = (matrix.square().sum().item() for matrix in (h_y.of_proxy, h_y.of_x))
    assert proxy_share(h_y, x, x_hat).item() == pytest.approx(of_proxy / (of_proxy + of_x), rel=0.1)
    assert proxy_share(h_y, x, x_hat.expand(3, 2000, 4)).item() == pytest.approx(proxy_share(h_y, x, x_hat).item())
    assert proxy_share(h_y, x, x_hat[0]) == 0
    assert proxy_share(h_y, x[:1].expand(9, 4), x_hat[0]) == 0  # no variance at all


WELL = HeadMetrics(norm=1.8, direct_norm=11.0, largest=2.0, smallest=0.5, lost=0, share=0.3)


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"lost": 1}, "W3 is singular: 1 direction of z has no effect on x_hat"),
        ({"lost": 3}, "W3 is singular: 3 directions of z have no effect on x_hat"),
        ({"norm": 610.0, "share": 3.0}, "W1 W3^+ explodes: its norm is 610, and that of W2 is 11;"),
        ({"share": 0.004}, "The proxies have no effect: 0.40% of the variance of the logits comes from x_hat"),
    ],
)
def test_remarks_name_what_is_wrong_and_nothing_else(wrong: dict[str, float], remark: str):
    assert head_remarks(WELL) == []
    (said,) = head_remarks(WELL._replace(**wrong))
    assert said.startswith(remark)


def test_what_is_negligible_and_what_explodes():
    assert head_remarks(WELL._replace(share=0.0101, norm=109.0)) == []
    assert len(head_remarks(WELL._replace(share=0.0099, norm=111.0))) == 2


def test_the_metrics_are_the_newest_of_each():
    heads = {f"head/{name}": value for name, value in WELL._asdict().items() if name != "share"}
    trained = [{"step": step, "head/share": 0.1 * step} for step in (1, 2, 3)]
    evaluated = [{"step": 2, **heads, "head/norm": 9.0}, {"step": 3, **heads}]
    assert head_metrics([*trained, *evaluated]) == WELL._replace(share=pytest.approx(0.3))
    assert head_metrics(trained) is None  # before the first evaluation
    assert head_metrics([{"step": 1, "loss/domain": 0.7}]) is None


def test_diagnostics_of_fresh_heads():
    torch.manual_seed(0)
    found = head_diagnostics(ProxyHeads(classes=65, features=2048, latent=100).constants())
    assert found.lost == 0
    assert 1.5 < found.singular_values[0] / found.singular_values[-1] < 1.7  # that of a random matrix
    assert 1.5 < found.norm < 2.1
    largest, *_, smallest = found.singular_values
    fresh = HeadMetrics(found.norm, found.direct_norm, largest, smallest, found.lost, share=0.5)
    assert head_remarks(fresh) == []
