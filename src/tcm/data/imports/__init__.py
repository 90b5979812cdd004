"""Shards of other formats to a folder of images: Hugging Face `datasets` (Arrow, Parquet) and WebDataset (tar).

In: shards. Out: a plain folder <out>/<class>/<image> with the bytes of the shards, for everything that reads folders.
Start with `importing.py`; `tables.py` and `archives.py` read the formats, `folder.py` writes.
"""
