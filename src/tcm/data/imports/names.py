"""Names of classes, keys and shards as names of folders and files."""

import hashlib
import re

LONGEST = 100  # bytes; file systems allow 255 for a name, which here has two parts
# What Windows, Linux or UTF-8 do not allow, and @, which separates the name of a shard from a key.
UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*@\ud800-\udfff]')
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # devices of Windows


def safe_name(name: str) -> str:
    """The name as every file system allows it. A name that has to change gets a hash, so that names stay different."""
    safe = UNSAFE.sub("_", name).strip(" ").rstrip(".")[:LONGEST]
    if safe.startswith(".") or RESERVED.fullmatch(safe):
        safe = f"_{safe}"
    while len(safe.encode()) > LONGEST:
        safe = safe[:-1]
    if safe == name and safe:
        return safe
    content = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{safe}-{content}"
