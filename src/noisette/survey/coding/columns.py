"""Tables of answers: a DataFrame, an Arrow table, a dict of columns, a list of dicts or a file, column by column."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray, IntArray
from noisette.aggregation._arrow import IMPUTE, as_numbers, as_text
from noisette.domains import BoolArray
from noisette.domains.categories import Labels
from noisette.survey.coding.axes import column_of, number_of

if TYPE_CHECKING:
    from noisette.survey.questions import Question

_NAMED_LABELS = 8  # labels or columns in a message
_WHOLE = 2.0**53  # whole numbers below are exact as floats


@dataclass(frozen=True, eq=False)
class Columns:
    """Some rows of answers; it says where in their source a value stands, the first row being row 1."""

    held: Mapping[str, Any]
    rows: int
    source: str = ""
    before: int = 0
    share: float = 1.0  # of the source that is read with these rows
    kept: IntArray | None = None  # places of these rows among others, where they are some of them

    def place(self, row: int, name: str) -> str:
        """Say where a value stands."""
        own = row if self.kept is None else int(self.kept[row])
        return f"{self.source}row {self.before + own + 1:,}, column {name!r}"

    def numbers(self, name: str, *, missing: bool = False) -> FloatArray:
        """Return a column of numbers, refusing what is not a finite number; where one may be ``missing`` it is NaN."""
        column = self._arrow(name)
        if missing and (some := self._where_given(name, column, np.nan, lambda own: own.numbers(name))) is not None:
            return some
        found = as_numbers(column, partial(self.place, name=name))
        self._check_finite(found, name)
        return found

    def on_axis(self, name: str, axis: str) -> Columns:
        """Return the rows with a column of dates or times of day as numbers."""
        import pyarrow as pa

        if axis == "number":
            return self
        column = self._arrow(name)
        if _is_text(column.type):
            column = pa.array([text or None for text in column.to_pylist()], pa.string())  # an empty field is missing
        try:
            found = column_of(column, axis)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            numbers: list[float | None] = []
            for row, value in enumerate(column.to_pylist()):  # one by one, as Arrow does not read 08:30:15.5
                try:
                    numbers.append(None if value is None else number_of(value, axis, name))
                except ValueError as wrong:
                    raise ValueError(f"{self.place(row, name)}: {wrong}") from error
            found = pa.array(numbers, pa.float64())
        return replace(self, held={name: found})

    def _where_given(
        self, name: str, column: Any, blank: Any, read: Callable[[Columns], Any]
    ) -> npt.NDArray[Any] | None:
        """Read the given answers of a column, with ``blank`` for those that are missing; None where none is."""
        import pyarrow as pa

        missing = self._missing(column)
        if not missing.any():
            return None
        found = np.broadcast_to(np.asarray(blank), (self.rows, *np.shape(blank))).copy()
        if (known := np.flatnonzero(~missing)).size:
            kept = column.take(known)
            kept = kept.dictionary_decode() if pa.types.is_dictionary(kept.type) else kept
            found[known] = read(Columns({name: kept}, known.size, self.source, self.before, kept=known))
        return found

    @staticmethod
    def _missing(column: Any) -> BoolArray:
        """Tell which answers are missing: no value, and in a text column an empty one too."""
        import pyarrow as pa
        import pyarrow.compute as compute

        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        blank = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        if _is_text(column.type):
            blank = blank | np.asarray(compute.equal(column, "").fill_null(True).to_numpy(zero_copy_only=False))
        return blank

    def codes(self, name: str, labels: Sequence[str], *, missing: bool = False) -> IntArray:
        """Return a column of labels as their places in a list; a ``missing`` one has the place after the last."""
        import pyarrow as pa

        column = self._arrow(name)
        if missing:
            some = self._where_given(name, column, len(labels), lambda own: own.codes(name, labels))
            if some is not None:
                return some
        if pa.types.is_dictionary(column.type) and not column.null_count:
            own = Columns({name: column.dictionary}, len(column.dictionary))
            places = own._places(name, labels)  # labels that nobody chose may be unknown
            found = places[np.asarray(column.indices)] if len(places) else np.zeros(0, dtype=np.int64)
        else:
            found = self._places(name, labels)
        if found.size and found.min() < 0:
            row = int(np.argmin(found))
            few = _validate.few(labels, quoted=True)
            bad = column[row].as_py()
            raise ValueError(
                f"{self.place(row, name)}: {bad!r} is not among the labels {few}. "
                "Add it to the survey, or map it to a label such as 'other' first."
            )
        return found

    def selections(self, name: str, labels: Sequence[str], most: int, *, missing: bool = False) -> IntArray:
        """Return a column of lists of labels, or of texts that name them with semicolons between, as rows of codes.

        A row has ``most`` codes in increasing order, filled up with -1; an empty text is a choice of nothing. Where the
        list or the text may be ``missing``, which then also an empty text is, its code is the one after all labels.
        """
        import pyarrow as pa
        import pyarrow.compute as compute

        from noisette.survey.questions import SEPARATOR

        column = self._lists_of_labels(name)
        if missing:
            none = [len(labels)] + [-1] * (most - 1)
            some = self._where_given(name, column, none, lambda own: own.selections(name, labels, most))
            if some is not None:
                return some
        if pa.types.is_nested(column.type):
            if column.null_count:
                raise ValueError(f"{self.place(int(np.argmax(column.is_null())), name)}: the list is missing. {IMPUTE}")
        else:
            column = compute.split_pattern(column.cast(pa.string()).fill_null(""), SEPARATOR)
        fixed = pa.types.is_fixed_size_list(column.type)
        sizes = column.type.list_size if fixed else np.asarray(column.value_lengths())
        owner = np.repeat(np.arange(self.rows), sizes)
        if column.flatten().null_count:
            row = int(owner[int(np.argmax(column.flatten().is_null()))])
            raise ValueError(f"{self.place(row, name)}: an option of the list is missing. Leave it out of the list.")
        chosen = compute.utf8_trim_whitespace(column.flatten().cast(pa.string()).fill_null(""))
        named = np.asarray(compute.not_equal(chosen, "").to_numpy(zero_copy_only=False), dtype=bool)
        codes, owner = _looked_up(chosen, labels)[named], owner[named]
        if codes.size and codes.min() < 0:
            at = int(np.argmin(codes))
            bad = chosen[int(np.flatnonzero(named)[at])].as_py()
            few = _validate.few(labels, quoted=True)
            raise ValueError(
                f"{self.place(int(owner[at]), name)}: {bad!r} is not among the options {few}. "
                "Add it to the survey, or leave it out."
            )
        many = np.bincount(owner, minlength=self.rows)
        if many.max() > most:
            row = int(np.argmax(many))
            raise ValueError(f"{self.place(row, name)}: expected at most {most} options, got {int(many[row])}.")
        order = np.lexsort((codes, owner))
        twice = (np.diff(codes[order]) == 0) & (np.diff(owner[order]) == 0)
        if twice.any():
            at = int(order[int(np.argmax(twice))])
            raise ValueError(f"{self.place(int(owner[at]), name)}: expected each option once, got it twice.")
        found = np.full((self.rows, most), -1, dtype=np.int64)
        found[owner[order], np.arange(codes.size) - np.repeat(np.cumsum(many) - many, many)] = codes[order]
        return found

    def _lists_of_labels(self, name: str) -> Any:
        """Return a column of lists, arrays or sets of labels, or of texts, as one Arrow array of lists or of texts."""
        import pyarrow as pa

        held, several = self.held[name], list | tuple | set | frozenset | np.ndarray
        column = self._arrow(name)
        if pa.types.is_struct(column.type) or pa.types.is_map(column.type):
            raise ValueError(
                f"{self.place(0, name)} holds {column.type}, not lists of labels. "
                "Give each person a list, empty for none."
            )
        if pa.types.is_nested(column.type):
            if pa.types.is_nested(column.type.value_type):
                place = self.place(0, name)
                raise ValueError(f"{place} holds {column.type}, not lists of labels. Give one list a row.")
            return column
        if isinstance(held, pa.Array | pa.ChunkedArray):
            return column
        if not any(isinstance(one, several) for one in held):
            return column
        rows = []
        for row, one in enumerate(held):  # of several kinds, of which Arrow makes no column of lists
            if isinstance(one, str):
                raise ValueError(f"{self.place(row, name)}: {one!r:.80} is a text among lists. Make it a list too.")
            rows.append([str(label) for label in one] if isinstance(one, several) else None)
        return pa.array(rows, pa.list_(pa.string()))

    def texts(self, name: str, *, missing: bool = False) -> list[Any]:
        """Return a column of texts, refusing what is not UTF-8 and what is missing, which is None where it may be."""
        held = self.held[name]
        for row, value in enumerate(held if isinstance(held, list) else ()):
            if isinstance(value, bytes) or (isinstance(value, str) and not _in_utf8(value)):
                remedy = "Decode bytes to a text first, or leave the row out."
                raise ValueError(f"{self.place(row, name)}: {value!r:.80} is no text of UTF-8. {remedy}")
        import pyarrow as pa

        column = self._arrow(name)
        if missing and (some := self._where_given(name, column, None, lambda own: own.texts(name))) is not None:
            kept: list[Any] = some.tolist()
            return kept
        try:
            found: list[str] = as_text(column, partial(self.place, name=name)).to_pylist()
        except pa.ArrowNotImplementedError as error:
            raise ValueError(f"{self.place(0, name)} holds {column.type}, not texts. Give one text a row.") from error
        except (ArithmeticError, ValueError) as error:
            if "UTF8" not in str(error):
                raise
            raise ValueError(f"Column {name!r} holds bytes that are no text of UTF-8. Decode them first.") from error
        return found

    def _places(self, name: str, labels: Sequence[str]) -> IntArray:
        """Return the place of each label, -1 where it is unknown."""
        import pyarrow as pa
        import pyarrow.compute as compute

        column = self._arrow(name)
        if pa.types.is_boolean(column.type):
            column = compute.if_else(column, "True", "False")
        elif pa.types.is_floating(column.type):
            column = self._whole(name, column)
        try:
            text = as_text(column, partial(self.place, name=name))
        except pa.ArrowNotImplementedError as error:
            raise ValueError(f"{self.place(0, name)} holds {column.type}, not labels. Give one label a row.") from error
        return _looked_up(text, labels)

    def _whole(self, name: str, column: Any) -> Any:
        """Return whole numbers, as pandas holds them where some are missing, as integers, which may be labels."""
        import pyarrow as pa

        numbers = column.to_numpy(zero_copy_only=False)  # what is missing is NaN there
        broken = ~np.isnan(numbers) & ~((np.abs(numbers) < _WHOLE) & (numbers == np.floor(numbers)))
        if broken.any():
            raise ValueError(
                f"{self.place(int(np.argmax(broken)), name)} holds numbers with a fraction, not labels. "
                "Turn them into texts first, e.g. with map(str)."
            )
        return column.cast(pa.int64())

    def arrays(self, name: str, shape: tuple[int, ...]) -> FloatArray:
        """Return vectors or tensors: a column of lists, an array with people along its first axis, or name[0] ..."""
        if name not in self.held:
            entries = [self.numbers(entry) for entry in entry_names(name, shape)]
            return np.stack(entries, axis=1).reshape(self.rows, *shape)
        held = self.held[name]
        if not isinstance(held, np.ndarray) or held.ndim == 1:
            first = next(iter(held), None)
            if isinstance(first, np.ndarray) and first.ndim > 1:  # Arrow takes none of more than one axis
                flat = [value.ravel() if isinstance(value, np.ndarray) else value for value in held]
                held = Columns({name: flat}, self.rows, self.source, self.before)._arrow(name)
            else:
                held = self._arrow(name)
            held = self._lists(name, held, int(np.prod(shape)))
        flat = held.reshape(self.rows, -1)
        if held.shape[1:] not in (shape, flat.shape[1:]) or flat.shape[1] != np.prod(shape):
            raise ValueError(f"{self.place(0, name)}: expected an array of shape {shape}, got {held.shape[1:]}.")
        if flat.dtype.kind not in "biuf":
            raise ValueError(f"{self.place(0, name)} holds {flat.dtype}, not numbers. Convert it to numbers first.")
        found = np.asarray(flat, dtype=np.float64).reshape(self.rows, *shape)
        self._check_finite(found, name)
        return found

    def _lists(self, name: str, column: Any, entries: int) -> FloatArray:
        """Return a column of lists, however deep they are, as rows of numbers."""
        import pyarrow as pa

        owner = np.arange(self.rows)
        if column.null_count:
            raise ValueError(f"{self.place(int(np.argmax(column.is_null())), name)}: the value is missing. {IMPUTE}")
        if not pa.types.is_nested(column.type):
            shown = f"{column[0].as_py()!r:.80}"
            raise ValueError(f"{self.place(0, name)}: expected a list of {entries:,} numbers, got {shown}.")
        while pa.types.is_nested(column.type) and not pa.types.is_struct(column.type):
            fixed = pa.types.is_fixed_size_list(column.type)
            owner = np.repeat(owner, column.type.list_size if fixed else np.asarray(column.value_lengths()))
            column = column.flatten()
        sizes = np.bincount(owner, minlength=self.rows)
        wrong = sizes != entries
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"{self.place(row, name)}: expected {entries:,} numbers, got {int(sizes[row]):,}.")
        return as_numbers(column, lambda entry: self.place(int(owner[entry]), name)).reshape(self.rows, entries)

    def _arrow(self, name: str) -> Any:
        """Return a column as one Arrow array, NaN and None being missing."""
        import pyarrow as pa

        held = self.held[name]
        if isinstance(held, pa.ChunkedArray):
            held = held.combine_chunks()
        if not isinstance(held, pa.Array):
            if isinstance(held, np.ndarray) and held.ndim != 1:
                raise ValueError(f"Expected one value a person in column {name!r}, got an array of {held.shape}.")
            try:
                held = pa.array(held, from_pandas=True)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):  # of several kinds: looked up as texts
                held = pa.array([None if value is None else str(value) for value in held], pa.string())
        if isinstance(held, pa.ChunkedArray):
            held = held.combine_chunks()
        if isinstance(held, pa.ExtensionArray):
            if held.type.extension_name == "pandas.period":
                held = pa.array(held.to_pandas().dt.to_timestamp())
            elif pa.types.is_nested(held.storage.type):  # such as a tensor of Arrow
                held = held.storage
        return held.cast(pa.string()) if pa.types.is_string_view(held.type) else held

    def _check_finite(self, values: FloatArray, name: str) -> None:
        finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            shown = f", got {values[row]}" if values.ndim == 1 else ""
            raise ValueError(f"{self.place(row, name)}: expected finite numbers{shown}. {IMPUTE}")


def entry_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return the columns of the entries of a vector or tensor: name[0], name[1], ..."""
    return [f"{name}[{','.join(map(str, place))}]" for place in np.ndindex(*shape)]


def columns_of(data: Any, questions: Sequence[Question], groups: Iterable[str]) -> Columns:
    """Return the columns that a survey needs; others are left alone.

    >>> from noisette.survey.questions import Number
    >>> columns_of([{"age": 30}, {"age": 41}], [Number("age", 0, 120)], []).numbers("age")
    array([30., 41.])
    """
    present, take = _opened(data, {one.name for one in questions if one.optional})
    wanted = needed(questions, groups, present, "The data")
    held = {name: take(name) for name in wanted}
    sizes = {name: len(column) for name, column in held.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"Expected columns of one length, got {sizes}.")
    rows = next(iter(sizes.values()))
    if rows == 0:
        raise ValueError("Expected at least one row of answers, got none.")
    return Columns(held, rows)


def columns_of_file(
    path: str | Path, questions: Sequence[Question], groups: Iterable[str], also: Iterable[str] = ()
) -> Iterator[Columns]:
    """Yield the rows of a CSV or Parquet file in blocks of constant memory; ``also`` names further columns."""
    from noisette.aggregation import Table

    present = Table.open(path).columns
    table = Table.open(path, needed(questions, [*groups, *also], present, str(path)))
    for batch in table.batches():
        held = dict(zip(batch.schema.names, batch.columns, strict=True))
        yield Columns(held, batch.num_rows, f"{path}, ", table.rows_read, table.share_read)
        table.rows_read += batch.num_rows


def needed(questions: Sequence[Question], groups: Iterable[str], present: Iterable[str], source: str) -> list[str]:
    """Return the columns to read, or say which one is missing."""
    known, wanted = {str(name) for name in present}, []
    for question in questions:
        entries = entry_names(question.name, question.domain.shape) if question.domain.shape else []
        whole = question.name in known or not entries or not known.issuperset(entries)
        wanted += [question.name] if whole else entries
    wanted += list(groups)
    for name in wanted:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            shown = ", ".join(map(repr, sorted(known)[:_NAMED_LABELS]))
            raise ValueError(
                f"{source} lacks column {name!r}.{hint} Rename or add it: the columns are {shown or 'none'}."
            )
    return wanted


def _opened(data: Any, optional: Container[str]) -> tuple[list[str], Any]:
    """Return the names of the columns, and a function that takes one; a dict may lack what is optional."""
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if isinstance(data, Mapping):
        return list(data), lambda name: _list(data[name], name)
    if pandas is not None and isinstance(data, pandas.DataFrame):
        twice = data.columns[data.columns.duplicated()].tolist()
        if twice:
            raise ValueError(f"The data has two columns named {twice[0]!r}. Rename one.")
        named = [name for name in (*data.columns, *data.index.names) if isinstance(name, str)]
        return named, lambda name: data[name] if name in data.columns else data.index.get_level_values(name)
    if arrow is not None and isinstance(data, arrow.RecordBatch):
        data = arrow.Table.from_batches([data])
    elif hasattr(data, "__arrow_c_stream__"):  # what other libraries have for tables
        arrow = import_module("pyarrow")
        with suppress(arrow.ArrowInvalid):  # a Series has one too, and is no table
            data = arrow.table(data)
    if arrow is not None and isinstance(data, arrow.Table):
        return data.column_names, data.column
    if isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data):
        present = dict.fromkeys(name for row in data for name in row)
        return list(present), lambda name: _from_rows(data, name, name in optional)
    shown = f"{type(data).__name__} of {type(data[0]).__name__}" if isinstance(data, list) and data else repr(data)
    raise TypeError(
        "Expected a DataFrame, an Arrow table, a dict of columns or a list of dicts with at least one row, "
        f"got {shown:.80}."
    )


def _list(column: Any, name: str) -> Any:
    """Return a column of a dict, refusing what has no length."""
    if isinstance(column, str) or not hasattr(column, "__len__"):
        raise TypeError(f"Expected a list of answers in column {name!r}, got {column!r:.60}. For one person: [value].")
    if isinstance(column, np.ma.MaskedArray) and column.ndim > 1:
        return np.where(column.mask, np.nan, column.data)  # what is masked is missing
    return np.asarray(column) if hasattr(column, "ndim") and column.ndim > 1 else column  # a tensor of torch, say


def _from_rows(rows: Sequence[Mapping[str, Any]], name: str, optional: bool) -> list[Any]:
    """Return a column of rows that are dicts."""
    if optional:
        return [row.get(name) for row in rows]
    for place, row in enumerate(rows):
        if name not in row:
            raise ValueError(f"row {place + 1:,} lacks column {name!r}. Give every row an answer to every question.")
    return [row[name] for row in rows]


def _is_text(kind: Any) -> bool:
    """Tell whether an Arrow type is one of texts."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _looked_up(text: Any, labels: Sequence[str]) -> IntArray:
    """Return the places of an Arrow column of texts in a list of labels, -1 where they are unknown."""
    encoded = text.dictionary_encode()
    return np.take(Labels.of(labels).find(encoded.dictionary.to_pylist()), np.asarray(encoded.indices))


def _in_utf8(value: str) -> bool:
    """Tell whether a text has no half of a character that UTF-16 writes in two."""
    return value.isascii() or not any(0xD800 <= ord(letter) < 0xE000 for letter in value)
