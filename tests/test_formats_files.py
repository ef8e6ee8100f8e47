"""Writing whole files or nothing; choosing formats; texts, columns and allowed ids."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semrecall import formats
from semrecall.data import Judgments, Run, Vectors
from semrecall.data.ids import ids
from semrecall.errors import FormatError, InputError
from semrecall.evaluate import Comparison
from semrecall.experiment.recorded import read_results
from semrecall.formats import read_judgments, read_run, write_whole
from semrecall.formats.table import FORMATS, NOUNS
from semrecall.splits import read_split
from semrecall.stopping.rule import read_stop_rule
from semrecall.systems.http import Template
from semrecall.tuning.saved_sweep import read_sweep

RUN = Run.from_arrays([[1, 2], [3, 4]])


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


# -- whole or not at all --------------------------------------------------------------------


@pytest.mark.parametrize("fault", [ValueError("x"), KeyboardInterrupt(), OSError(errno.ENOSPC, "")])
def test_an_old_file_stays_when_writing_fails(tmp_path: Path, fault: BaseException) -> None:
    path = text(tmp_path / "a.csv", "old")

    def write() -> None:
        with formats.writing(path) as temporary:
            temporary.write_text("half")
            raise fault

    with pytest.raises(type(fault)):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "r.parquet"
    with pytest.raises(OSError, match="No space left") as error:
        formats.write(RUN, path)
    assert error.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", ["csv", "parquet", "jsonl", "npy"])
def test_a_full_device(name: str) -> None:
    with pytest.raises(OSError, match="No space left") as error:
        formats.write(RUN, "/dev/full", format=name)
    assert error.value.filename == "/dev/full"


def test_the_new_file_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", "old")
    with path.open() as reader:
        formats.write(RUN, path)
        # Whoever reads the old file goes on reading it whole.
        assert reader.read() == "old"
    assert path.read_text().startswith("query_id,")


def test_permissions_and_links(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    umask = os.umask(0o022)
    os.umask(umask)
    formats.write(RUN, path)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    path.chmod(0o640)
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    formats.write(RUN, link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the directory .* does not exist"):
        formats.write(RUN, tmp_path / "no" / "r.csv")
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(InputError, match="is a directory"):
        formats.write(RUN, tmp_path / "dir.csv")


def test_pipes_get_the_finished_bytes(tmp_path: Path) -> None:
    code = """
        import sys
        from semrecall import formats
        from semrecall.data import Run
        formats.write(Run.from_arrays([[1, 2], [3, 4]]), sys.argv[1], format=sys.argv[2])
    """
    for target in ("-", "/dev/stdout"):
        command = [sys.executable, "-c", textwrap.dedent(code), target]
        done = subprocess.run([*command, "jsonl"], capture_output=True, text=True, check=True)
        assert done.stdout == '{"query_id": 0, "ids": [1, 2]}\n{"query_id": 1, "ids": [3, 4]}\n'
    # Parquet needs to seek, and a redirected file keeps what was there before.
    log = text(tmp_path / "log", "before")
    with log.open("ab") as file:
        subprocess.run([*command, "parquet"], stdout=file, check=True)
    assert log.read_bytes()[:10] == b"beforePAR1"


# -- the table ------------------------------------------------------------------------------


def test_the_table_is_complete() -> None:
    assert formats.formats() == FORMATS
    suffixes = [s for f in FORMATS.values() for s in f.suffixes]
    assert len(set(suffixes)) == len(suffixes)
    for name, row in FORMATS.items():
        assert set(row.write) <= set(row.read) <= set(NOUNS), name
        assert row.about
        assert all(s.startswith(".") and s == s.lower() for s in row.suffixes)
    # No suffix hides another: the first match is the only one.
    for suffix in suffixes:
        assert sum("x" + suffix != s and suffix.endswith(s) for s in suffixes) == 1


def test_docs_show_every_format() -> None:
    page = (Path(__file__).parents[1] / "docs" / "formats.md").read_text()
    for name, row in FORMATS.items():
        assert f"| `{name}` |" in page
        assert all(f"`{suffix}`" in page for suffix in row.suffixes)


def test_unknown_formats(tmp_path: Path) -> None:
    path = text(tmp_path / "a.xyz", "what is this")
    with pytest.raises(InputError, match="does not say its format; known suffixes for run"):
        formats.read_run(path)
    with pytest.raises(InputError, match="unknown format 'fbn'") as error:
        formats.read_vectors(path, format="fbn")
    assert "fbin" in (error.value.hint or "")
    with pytest.raises(InputError, match="the format fvecs holds vectors, not judgments") as error:
        formats.read_judgments(path, format="fvecs")
    assert "trec" in (error.value.hint or "")
    with pytest.raises(InputError, match="the format fbin writes vectors, not run"):
        formats.write(RUN, tmp_path / "a.fbin")
    with pytest.raises(InputError, match="does not say its format"):
        formats.write(RUN, tmp_path / "a")
    with pytest.raises(InputError, match="does not say of which type the vectors are"):
        formats.read_vectors(text(tmp_path / "a.bin", "x"))
    with pytest.raises(InputError, match="cannot write a dict"):
        formats.write({}, tmp_path / "a.csv")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError) as missing:
        formats.read(tmp_path / "none.csv")
    assert missing.value.filename == str(tmp_path / "none.csv")


def test_files_without_suffix_are_looked_into(tmp_path: Path) -> None:
    for name in ("parquet", "npy", "jsonl", "trec"):
        formats.write(RUN, tmp_path / "a", format=name)
        assert formats.read(tmp_path / "a").ids.to_list() == [[1, 2], [3, 4]]
    formats.write(Vectors.of(np.ones((2, 2), np.uint8)), tmp_path / "a", format="npy")
    assert isinstance(formats.read(tmp_path / "a"), Vectors)


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    formats.write(RUN, tmp_path / "r.csv")
    with pytest.raises(InputError, match="holds run; reading that takes no option conflicts"):
        formats.read(tmp_path / "r.csv", conflicts="max")
    with pytest.raises(InputError, match="duplicates is 'last'; expected error or first"):
        formats.read_run(tmp_path / "r.csv", duplicates="last")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="nan is 'first'; expected error or last"):
        formats.read_run(tmp_path / "r.csv", nan="first")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="conflicts is 'mean'"):
        formats.read_judgments(tmp_path / "r.csv", conflicts="mean")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a file of the format csv has no parts"):
        formats.read_run(tmp_path / "r.csv", dataset="test")
    with pytest.raises(InputError, match="unknown noun 'qrels'"):
        formats.read(tmp_path / "r.csv", noun="qrels")


# -- texts ----------------------------------------------------------------------------------


def test_texts(tmp_path: Path) -> None:
    beir = '{"_id": "1", "title": "T", "text": "body"}\n{"_id": 2, "title": "", "text": "b"}\n'
    expected = {"1": "T\nbody", "2": "b"}
    assert formats.read_texts(text(tmp_path / "a.jsonl", beir)) == expected
    csv = "id,title,text\n1,T,body\n2,,b\n"
    assert formats.read_texts(text(tmp_path / "a.csv", csv)) == expected
    plain = 'x\tsay "hi\ny\ta\tb\n'
    assert formats.read_texts(text(tmp_path / "a.tsv", plain)) == {"x": 'say "hi', "y": "a\tb"}
    headed = "query_id\ttext\nq1\twhat\n"
    assert formats.read_texts(text(tmp_path / "b.tsv", headed)) == {"q1": "what"}


def test_texts_of_real_files(shared: Callable[[str], Path]) -> None:
    docs = formats.read_texts(shared("data/cranfield/docs.parquet"))
    assert len(docs) == 1400
    queries = formats.read_texts(shared("data/cranfield/queries.parquet"))
    assert queries["1"].startswith("what similarity laws must be obeyed")


def test_faults_of_texts(tmp_path: Path) -> None:
    content = '{"id": 1, "text": "a"}\n{"id": 2}\n{"text": "c"}\n{"id": 1, "text": "d"}\n'
    with pytest.raises(FormatError) as error:
        formats.read_texts(text(tmp_path / "a.jsonl", content))
    assert error.value.message.splitlines()[1:] == [
        "  line 3: no id",
        "  line 2: no text",
        "  the id 1 stands at line 1 and again at line 4",
    ]
    with pytest.raises(FormatError, match="no column for texts: found columns id, x"):
        formats.read_texts(text(tmp_path / "a.csv", "id,x\n1,2\n"))
    with pytest.raises(FormatError, match="no column for ids: found columns 1, x") as raised:
        formats.read_texts(text(tmp_path / "a.csv", "1,x\n2,y\n"))
    assert (raised.value.hint or "").startswith("line 1 looks like data")
    with pytest.raises(FormatError, match="no column for ids: found columns t, text"):
        formats.read_texts(text(tmp_path / "a.csv", "t,text\n1,2\n"))
    with pytest.raises(FormatError, match=r"expected JSON lines \(\.jsonl\), \.csv"):
        formats.read_texts(text(tmp_path / "a.doc", "x"))


def test_columns(tmp_path: Path) -> None:
    csv = "query_id,tenant,length,weight,language\nq1,007,12,0.5,th\nq2,008,7,1.25,\n"
    found = formats.read_columns(text(tmp_path / "a.csv", csv))
    assert list(found["query_id"]) == ["q1", "q2"]
    # "007" is no number: it would print as 7.
    assert found["tenant"].tolist() == ["007", "008"]
    assert found["length"].tolist() == [12, 7]
    assert found["length"].dtype == np.int64
    assert found["weight"].tolist() == [0.5, 1.25]
    assert found["language"].tolist() == ["th", ""]
    lines = '{"_id": 1, "metadata": {"lang": "en"}, "n": 1}\n{"_id": 2, "metadata": {}, "n": 2}\n'
    found = formats.read_columns(text(tmp_path / "a.jsonl", lines))
    assert list(found["query_id"]) == [1, 2]
    assert found["metadata.lang"].tolist() == ["en", None]
    assert found["n"].tolist() == [1, 2]
    with pytest.raises(FormatError, match="query 1 stands at line 1 and at line 2"):
        formats.read_columns(text(tmp_path / "a.jsonl", '{"id": 1}\n{"id": 1}\n'))
    with pytest.raises(FormatError, match="no column for query ids"):
        formats.read_columns(text(tmp_path / "a.csv", "a,b\n1,2\n"))


def test_allowed(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = '{"query_id": "q1", "ids": [3, 1]}\n{"query_id": "q2", "ids": []}\n'
    allowed = formats.read_allowed(text(tmp_path / "a.jsonl", lines))
    assert isinstance(allowed, dict)
    assert {q: list(row) for q, row in allowed.items()} == {"q1": [3, 1], "q2": []}
    table = pa.table({"query_id": ["q2", "q1", "q2"], "doc_id": ["a", "b", "c"]})
    pq.write_table(table, tmp_path / "a.parquet")
    allowed = formats.read_allowed(tmp_path / "a.parquet")
    assert isinstance(allowed, dict)
    assert {q: list(row) for q, row in allowed.items()} == {"q2": ["a", "c"], "q1": ["b"]}
    np.save(tmp_path / "a.npy", np.array([[True, False]]))
    mask = formats.read_allowed(tmp_path / "a.npy")
    assert isinstance(mask, np.ndarray)
    assert mask.tolist() == [[True, False]]
    np.save(tmp_path / "a.npy", np.array([1, 0]))
    with pytest.raises(FormatError, match=r"holds int64 of shape \(2,\); expected booleans"):
        formats.read_allowed(tmp_path / "a.npy")


def test_importing_formats_loads_nothing_heavy() -> None:
    code = (
        "import sys, semrecall.formats; "
        "sys.exit(any(m in sys.modules for m in ('pyarrow', 'h5py', 'scipy', 'pandas')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- text that no UTF-8 file can hold --------------------------------------------------------


def _broken_column() -> pa.Array:
    data = pa.py_buffer(b"q1q\xff"), pa.py_buffer(np.array([0, 2, 4], np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), 2, [None, data[1], data[0]])


@pytest.mark.parametrize("end", ["\\ud83d", "\\uDE00 and more"])
def test_half_a_character_in_json_is_a_fault_with_its_line(tmp_path: Path, end: str) -> None:
    whole = '{"query_id": "q\\ud83d\\ude00", "doc_id": "a", "grade": 1}\n'
    path = tmp_path / "labels.jsonl"
    path.write_text(whole + whole.replace('"a"', f'"a{end}"'))
    with pytest.raises(FormatError, match=r"line 2: is no JSON .half a character, .ud"):
        read_judgments(path)
    path.write_text(whole)
    found = read_judgments(path)
    assert isinstance(found, Judgments)
    assert found.query_ids.tolist() == ["q\U0001f600"]


@pytest.mark.parametrize(
    "read",
    [
        read_judgments, read_run, read_sweep, read_results, read_stop_rule, read_split,
        Template.read, Comparison.load,
    ],
)  # fmt: skip
def test_json_that_is_nested_too_deep(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(InputError):
        read(path)


def test_bytes_that_are_no_text_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    table = pa.table({"query_id": _broken_column(), "doc_id": ["a", "b"], "grade": [1, 1]})
    pq.write_table(table, path)
    with pytest.raises(FormatError, match="column query_id holds text that is not UTF-8"):
        read_judgments(path)


@pytest.mark.parametrize("values", [["a\ud800", "b"], [7, "\udc00"], [b"\xff"], _broken_column()])
def test_ids_that_are_no_unicode(values: Any) -> None:
    with pytest.raises(InputError, match="query ids hold text that is not Unicode"):
        ids(values, what="query ids")


def test_a_whole_text_names_files_that_are_no_unicode(tmp_path: Path) -> None:
    write_whole(tmp_path / "page.html", "made from run\udcff.txt\n")
    assert (tmp_path / "page.html").read_bytes() == b"made from run?.txt\n"
