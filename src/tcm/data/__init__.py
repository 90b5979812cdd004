"""Images on disk to packed stores, and from there to batches."""
