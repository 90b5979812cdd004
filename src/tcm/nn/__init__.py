"""Networks: backbones and the heads on top of them."""
