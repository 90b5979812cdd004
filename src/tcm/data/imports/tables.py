"""Shards of rows and columns: Parquet files, and the Arrow files of Hugging Face `datasets`. Read by pyarrow."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tcm.data.imports.records import LABEL_NAMES, ChosenFields, Fields, ShardRecord
from tcm.data.imports.shards import Shard
from tcm.errors import InputError, printable

if TYPE_CHECKING:
    import pyarrow as pa

EXTRA = "pip install 'tcm[import]'"
ROWS = 16  # of a Parquet file that are in memory together
BUFFER = 1 << 20  # bytes of a Parquet column that are read together; otherwise it is the column of a whole row group


def require_pyarrow() -> None:
    """An error if pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"Parquet and Arrow files need pyarrow ({printable(error)}); install it with {EXTRA}"
        ) from error


def fields(shard: Shard) -> Fields:
    """The columns of a shard."""
    with _readable(shard):
        schema = next(_batches(shard, None))[0]
        features = _features(schema)
        by_type = {
            kind: [name for name in schema.names if _type_of(features, name) == kind]
            for kind in ("Image", "ClassLabel")
        }
        labels = [column.name for column in schema if column.name in LABEL_NAMES and _is_label(column.type)]
        images = [column.name for column in schema if _is_image(column.type)]
        return Fields(schema.names, by_type["Image"] or images, by_type["ClassLabel"] or labels)


def records(shard: Shard, chosen: ChosenFields) -> Iterator[tuple[int, ShardRecord]]:
    """The images of a shard in their order, each with the bytes of the shard that are read by then."""
    assert chosen.image is not None
    columns = list(dict.fromkeys(name for name in chosen if name is not None))
    row = 0
    with _readable(shard):
        for schema, batch, done in _batches(shard, columns):
            if batch is None:
                _require_columns(shard, schema, chosen)
                continue
            batch.validate(full=True)  # places in damaged Arrow files may lie outside of the memory
            images, places = _contents(batch.column(chosen.image))
            labels, domains = (_names(schema, batch, name) for name in (chosen.label, chosen.domain))
            for content, place, label, domain in zip(images, places, labels, domains, strict=True):
                problem = (
                    "" if content else f"the shard has no bytes of it{f', only the path {place}' if place else ''}"
                )
                yield done, ShardRecord(f"{row:08d}", content or None, label, domain, problem)
                row += 1


@contextmanager
def _readable(shard: Shard) -> Iterator[None]:
    """Turns the errors of a damaged shard into an InputError."""
    require_pyarrow()
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = printable(error).split("\\n")[0]
        raise InputError(f"{shard.shown} cannot be read: {reason}; download or save it again") from error


def _batches(shard: Shard, columns: list[str] | None) -> Iterator[Any]:
    """First the schema of the shard, and then its rows in parts: (schema, rows or None, bytes that are read)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = shard.path.stat().st_size
    if shard.kind == "parquet":
        with pq.ParquetFile(shard.path, buffer_size=BUFFER, pre_buffer=False) as file:
            schema, rows, done = file.schema_arrow, max(file.metadata.num_rows, 1), 0
            yield schema, None, 0
            for batch in file.iter_batches(batch_size=ROWS, columns=columns):
                done += len(batch)
                yield schema, batch, size * done // rows
        return
    with pa.memory_map(str(shard.path)) as source:
        # `datasets` writes streams, other programs also files, which begin with another word.
        begins = source.read(6)
        source.seek(0)
        if begins == b"ARROW1":
            reader = pa.ipc.open_file(source)
            parts: Any = (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            reader = parts = pa.ipc.open_stream(source)
        yield reader.schema, None, 0
        for batch in parts:
            yield reader.schema, batch.select(columns), source.tell()


def _require_columns(shard: Shard, schema: "pa.Schema", chosen: ChosenFields) -> None:
    for name, test, wanted in (
        (chosen.image, _is_image, "images"),
        (chosen.label, _is_label, "class names or numbers"),
        (chosen.domain, _is_label, "names or numbers"),
    ):
        if name is not None and name not in schema.names:
            raise InputError(f"{shard.shown} has no column {printable(name)}; it has {', '.join(schema.names)}")
        if name is not None and schema.names.count(name) > 1:
            raise InputError(f"{shard.shown} has several columns {printable(name)}; rename or remove the others")
        if name is not None and not test(kind := schema.field(name).type):
            raise InputError(f"the column {printable(name)} of {shard.shown} is {kind}; name a column of {wanted}")


def _contents(column: "pa.Array") -> tuple[list[bytes | None], Sequence[str | None]]:
    """The bytes of images, and the paths that they had, where these are known."""
    import pyarrow as pa

    if not pa.types.is_struct(column.type):
        return column.to_pylist(), [None] * len(column)
    assert isinstance(column, pa.StructArray)
    has_path = column.type.get_field_index("path") >= 0
    return column.field("bytes").to_pylist(), column.field("path").to_pylist() if has_path else [None] * len(column)


def _names(schema: "pa.Schema", batch: "pa.RecordBatch", column: str | None) -> list[str | None]:
    """The class names of rows. Numbers without names are their own names; -1 and "" say that there is no label."""
    if column is None:
        return [None] * len(batch)
    noted = _features(schema).get(column, {}).get("names")
    names = noted if isinstance(noted, list) else []

    def name(value: Any) -> str | None:
        if value is None or value == -1 or (isinstance(value, str) and not value.strip()):
            return None
        found = names[value] if isinstance(value, int) and 0 <= value < len(names) else value
        return None if found is None else str(found)

    return [name(value) for value in batch.column(column).to_pylist()]


def _features(schema: "pa.Schema") -> dict[str, dict[str, Any]]:
    """What `datasets` notes about the columns."""
    noted = (schema.metadata or {}).get(b"huggingface")
    try:
        found = json.loads(noted)["info"]["features"] if noted else {}
        return {name: feature for name, feature in found.items() if isinstance(feature, dict)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _type_of(features: dict[str, dict[str, Any]], column: str) -> str | None:
    return features.get(column, {}).get("_type")


def _is_image(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and _is_image(kind.field(place).type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_label(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_label(kind.value_type)
    return pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
