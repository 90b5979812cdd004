"""Finished runs as files that other programs load: ONNX, PyTorch's .pt2, and a folder for the Hugging Face Hub.

In: a finished run. Out: a file or folder, and how far its outputs are from those of the run. Start with `export.py`;
`graph.py` has the network without the parts of training, `formats.py` writes and runs the files, `hub.py` writes the
folder and its model card.
"""
