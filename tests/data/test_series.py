import gzip
import os
from pathlib import Path

import pytest
import torch

from hardstep.data import draw_waves, etth1, forecasting, read_column, waves
from hardstep.errors import DataError

TABLE = "date,load,oil\n" + "".join(
    f"2020-01-01 {hour:02}:00:00,{hour},{10 * hour}.5\n" for hour in range(6)
)
# Before fixtures hide the data of the user.
REAL = Path(os.environ.get("HARDSTEP_DATA", "/nowhere"), "etth1", "ETTh1.csv.gz")


@pytest.fixture
def table(tmp_path):
    """Writes a CSV file."""

    def write(text, name="table.csv"):
        path = tmp_path / name
        content = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def test_a_window_is_followed_by_its_label_and_crosses_no_border():
    data = forecasting(torch.arange(40.0), (20, 10, 10), 3, 2)
    test = data.open_test()
    assert [len(part) for part in (data.train, data.valid, test)] == [16, 6, 6]
    deviation = (399 / 12) ** 0.5  # of 0 … 19
    for part, first, last in ((data.train, 0, 19), (data.valid, 20, 29), (test, 30, 39)):
        values = torch.cat([part.inputs, part.labels], 1) * deviation + 9.5
        expected = torch.arange(float(len(part)))[:, None] + first + torch.arange(5.0)
        torch.testing.assert_close(values, expected, rtol=0, atol=1e-4)
        assert round(float(values.max())) == last


def test_values_are_standardized_by_the_training_part_only():
    series = torch.cat([draw_waves(300), draw_waves(100) + 50])
    data = forecasting(series, (300, 50, 50), 10, 5)
    assert abs(float(data.train.inputs.mean())) < 0.1
    assert float(data.valid.inputs.mean()) > 5


def test_the_series_made_here_is_the_same_for_every_seed_and_day_follows_day():
    first, again = waves(0), waves(5)
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert [len(first.train), len(first.valid), len(first.open_test())] == [753, 153, 153]
    x, y = first.valid.inputs, first.valid.labels
    assert float((y - x).square().mean()) < float((y - x[:, -1:]).square().mean()) / 2


@pytest.mark.skipif(not REAL.is_file(), reason="HARDSTEP_DATA has no etth1/ETTh1.csv.gz")
def test_persistence_on_etth1_is_what_the_paper_prints(monkeypatch):
    monkeypatch.setenv("HARDSTEP_DATA", str(REAL.parents[1]))
    data = etth1(0)
    test = data.open_test()
    assert [len(data.train), len(data.valid), len(test)] == [8_449, 2_689, 2_689]

    def persist(part):
        return part.labels - part.inputs[:, -1:]

    assert round(float(persist(test).square().mean()), 4) == 0.0687
    assert round(float(persist(test).abs().mean()), 4) == 0.2022
    assert round(float(persist(data.valid).square().mean()), 4) == 0.1375


def test_etth1_is_read_from_the_data_folder_packed_or_not(tmp_path, monkeypatch):
    rows = "".join(f"{i // 24},{i}\n" for i in range(14_400))
    monkeypatch.setattr("hardstep.data.series.read_column", lambda path, *_, **__: path)
    monkeypatch.setattr("hardstep.data.series.forecasting", lambda path, *_: path)
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    (tmp_path / "etth1").mkdir()
    plain = tmp_path / "etth1" / "ETTh1.csv"
    plain.write_text("date,OT\n" + rows)
    assert etth1() == plain
    packed = plain.with_name("ETTh1.csv.gz")
    packed.write_bytes(b"")
    assert etth1() == packed


@pytest.mark.parametrize(
    ("values", "parts", "message"),
    [
        (torch.zeros(10), (20, 5, 5), "10 values are fewer than the 30 of the three parts 20"),
        (torch.arange(30.0), (20, 5, 5), "5 values for validation are too few for a window of 6"),
        (torch.arange(30.0), (5, 20, 5), "5 values for training are too few for a window of 6"),
        (torch.ones(30), (10, 10, 10), "all 10 values for training are 1"),
        (torch.ones(30, 2), (10, 10, 10), r"a series has one dimension, got shape \(30, 2\)"),
        ([*range(29), float("nan")], (10, 10, 10), r"1 of 30 values are not finite, .* \[29\]"),
    ],
)
def test_a_series_that_makes_no_windows_is_refused(values, parts, message):
    with pytest.raises(DataError, match=message):
        forecasting(values, parts, 4, 2)


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_a_column_is_read_in_the_order_of_its_rows(table, name):
    values = read_column(table(TABLE, name), "oil", time="date")
    assert values.tolist() == [0.5, 10.5, 20.5, 30.5, 40.5, 50.5]


def test_a_byte_order_mark_empty_lines_and_other_line_ends_do_not_matter(table):
    text = "\ufeff" + TABLE.replace("\n", "\r\n") + "\r\n\r\n"
    assert read_column(table(text), "load", time="date").tolist() == [0, 1, 2, 3, 4, 5]


BAD = {
    "missing column": (TABLE.replace("oil", "gas"), "no column 'oil'; there is date, load, gas"),
    "nearly the name": (TABLE.replace("oil", "oils"), "no column 'oil'; did you mean 'oils'"),
    "text": (TABLE.replace("20.5", "cold"), "line 4, column oil: 'cold' is not a number"),
    "gap": (TABLE.replace("20.5", ""), "line 4, column oil is empty; fill the gap"),
    "nan": (TABLE.replace("20.5", "NaN"), "line 4, column oil: NaN is not a finite number"),
    "missing row": (
        TABLE.replace("2020-01-01 03:00:00,3,30.5\n", ""),
        "line 5, column date: 2020-01-01 04:00:00 comes 2:00:00 after the row before",
    ),
    "backward": (TABLE.replace("01 01:", "01 00:"), "line 3, column date: .* comes 0:00:00 after"),
    "odd time": (TABLE.replace("2020-01-01 03", "noon"), "line 5, .* is not a time such as"),
    "zone": (TABLE.replace("03:00:00", "03:00:00+00:00"), "differ in having a zone"),
    "short row": (TABLE.replace(",3,30.5", ",3"), "line 5 has 2 cells and the first line 3"),
    "no rows": ("date,load,oil\n", "has no rows below its first line"),
    "nothing": ("", "is empty; its first line should name the columns"),
    "encoding": (TABLE.replace("oil", "öl").encode("latin-1"), "is not UTF-8 text, at byte 10"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_table_at_fault_is_refused_with_the_line(table, fault):
    text, message = BAD[fault]
    with pytest.raises(DataError, match=message):
        read_column(table(text), "oil", time="date")


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "broken.csv.gz").write_bytes(gzip.compress(TABLE.encode())[:-20])
    for name, reason in (("none.csv", "No such file"), ("broken.csv.gz", "ended before")):
        with pytest.raises(DataError, match=reason):
            read_column(tmp_path / name, "oil")
