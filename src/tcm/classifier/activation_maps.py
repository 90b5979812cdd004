"""Which parts of an image speak for its class: Grad-CAM of an image and of its counterfactuals (TCM Figure 8).

Grad-CAM (Selvaraju et al., ICCV 2017) weights the last feature maps by the mean gradient of the class's score. For a
linear classifier on pooled maps it equals the class activation map (Zhou et al., CVPR 2016), which the paper shows, but
it also works with a bottleneck and with h_y.
"""

import torch
from torch import Tensor, nn

from tcm.methods.method import Method
from tcm.nn.backbone import Backbone


class Recording(nn.Module):
    """A backbone that keeps its last images and their feature maps."""

    images: Tensor
    maps: Tensor

    def __init__(self, backbone: Backbone):
        super().__init__()
        self.backbone, self.features = backbone, backbone.features

    def forward(self, images: Tensor) -> Tensor:
        """Features [batch, features]."""
        self.images, self.maps = images, self.backbone.maps(images)
        if not self.maps.requires_grad:  # a frozen backbone
            self.maps.requires_grad_()
        return self.backbone.pooled(self.maps)


def activation_maps(method: Method, images: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Grad-CAM, before its ReLU, of images [batch, ...] for one class each, and the views that the scores depend on.

    Maps [views, batch, height, width] and images [views, batch, 3, side, side]: one view, or the image and then its
    counterfactuals. The gradient is that of the whole score, so each view's map has the size of its contribution.
    """
    plain, recording = method.backbone, Recording(method.backbone)
    method.backbone = recording  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with torch.enable_grad():
            scores = method.class_scores(images)
            chosen = scores.gather(1, classes[:, None]).sum()
            (gradient,) = torch.autograd.grad(chosen, recording.maps)
    finally:
        method.backbone = plain
    found = (gradient.mean(dim=(2, 3), keepdim=True) * recording.maps).sum(dim=1).detach()
    return found.unflatten(0, (-1, len(images))), recording.images.unflatten(0, (-1, len(images)))
