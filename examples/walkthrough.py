# %% [markdown]
"""A walk through the library on the built-in digits, cell by cell.

    python examples/walkthrough.py

Editors such as VS Code, PyCharm and Spyder run the cells one by one. `jupytext --to notebook examples/walkthrough.py`
makes a notebook of it. It takes a few minutes on a CPU.
"""

# %%
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import tcm
from tcm.data import digits

STEPS = 300  # of the training of a network: 600 are usual for the digits
K = 4  # mechanisms
OUT = Path("runs/walkthrough")

# %% [markdown]
# ## The task
# Both domains have the same ten classes and look different. In the source the colour goes with the class, in the target
# it does not: a classifier that looks at colours is right on the source only. Labels of the target are not used.

# %%
source, target = digits.domain("source"), digits.domain("target")
figure, axes = plt.subplots(2, 10, figsize=(10, 2.4))
for row, domain in zip(axes, (source, target), strict=True):
    for axis, number in zip(row, range(10), strict=True):
        axis.imshow(domain.images[np.flatnonzero(domain.labels == number)[0]])
        axis.set_axis_off()
OUT.mkdir(parents=True, exist_ok=True)
figure.savefig(OUT / "domains.png")

# %% [markdown]
# ## Train
# `tcm.train` trains one method. Repeating the call resumes an interrupted run; a finished one is only loaded. With
# folders of your own: `tcm.train("mcc", source="photos", target="cliparts", out="runs/mcc")`.

# %%
common = {"data": {"benchmark": "digits"}, "steps": STEPS, "evaluate_every": STEPS, "quiet": True}
models = {name: tcm.train(name, out=OUT / name, **common) for name in ("erm", "mcc")}
for name in models:
    print(f"{name}: {tcm.evaluate(OUT / name, quiet=True)['target']['accuracy']:.1%} of the target images")

# %% [markdown]
# ## Predict and explain
# A `Classifier` takes paths, PIL images, arrays and tensors. `explain` shows which parts of an image speak for its
# class.

# %%
model = tcm.load(OUT / "mcc")
few = target.images[:6]
print(model.predict(few), model.predict_proba(few).max(axis=1).round(2))
figure, axes = plt.subplots(2, 6, figsize=(8, 2.8))
for column, (image, heat) in enumerate(zip(few, model.explain(few), strict=True)):
    axes[0, column].imshow(image)
    axes[1, column].imshow(heat, cmap="Oranges")
figure.savefig(OUT / "explained.png")

# %% [markdown]
# ## The network underneath
# `method` is a `torch.nn.Module`: images in, logits out.

# %%
inputs = model.preprocess(few)
print(inputs.shape, model.method(inputs).shape, model.features(few).shape)

# %% [markdown]
# ## Feature vectors and scikit-learn
# `TCMClassifier` adapts feature vectors too: here those of the source-only network. Target samples have the label -1.

# %%
features = models["erm"].features(np.concatenate([source.images, target.images]))
labels = np.concatenate([source.labels, np.full(len(target.labels), -1)])
estimator = tcm.TCMClassifier(steps=STEPS).fit(features, labels)
score = estimator.score(features[len(source.labels) :], target.labels)
print(f"tcm on the features of erm: {score:.1%} of the target images")

# %% [markdown]
# ## Choose without target labels
# A larger score is better. It is computed from the predictions on the target alone.

# %%
scorer = tcm.TargetScorer("information")
print({name: round(scorer(model, target.images), 3) for name, model in models.items()})

# %% [markdown]
# ## Mechanisms and counterfactuals
# `tcm.fit` does both stages: mechanisms that change one factor of an image each, then TCM on images and their
# counterfactuals. It also trains source only, and chooses between both without target labels.

# %%
stage_one = {"steps": min(STEPS, 250)}
fitted = tcm.fit(
    data={"benchmark": "digits"}, out=OUT / "fit", k=K, steps=STEPS, mechanisms=stage_one, report=False, quiet=True
)
right = np.mean(fitted.predict(target.images) == target.labels.astype(str))
print(f"{fitted.method_name}, chosen by tcm.fit: {right:.1%} of the target images")

# %%
counterfactuals = fitted.counterfactuals(few)  # [6, K, 32, 32, 3]: each image by each mechanism
figure, axes = plt.subplots(1 + K, 6, figsize=(6, 1 + K))
for column, (image, made) in enumerate(zip(few, counterfactuals, strict=True)):
    for row, shown in enumerate([image, *made]):
        axes[row, column].imshow(shown)
        axes[row, column].set_axis_off()
figure.savefig(OUT / "counterfactuals.png")
print("the first image:", fitted.predict(few[:1]), "its counterfactuals:", fitted.predict(counterfactuals[0]))
