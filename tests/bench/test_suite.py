import pytest

from hardstep.bench import load
from hardstep.bench.suite import Job, key_of, read, remaining
from hardstep.cli.bench import run_suite, run_table
from hardstep.errors import ConfigError, DataError

SUITE = """
data = "digits"
[[run]]
tasks = ["mlp"]
methods = ["polystep", "random"]
seeds = [0, 1]
match = "steps"
budget = 2
[options.mlp.random]
population = 4
"""


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SUITE)
    return path


def test_a_suite_expands_to_every_combination_with_its_options(suite):
    jobs = read(suite)
    assert [(j.method, j.seed) for j in jobs] == [
        ("polystep", 0), ("polystep", 1), ("random", 0), ("random", 1),
    ]  # fmt: skip
    assert jobs[2].options == (("population", 4),)
    assert jobs[0].options == ()
    assert len({job.key for job in jobs}) == 4


def test_runs_are_recorded_skipped_when_known_and_tabulated(suite, tmp_path, capsys):
    records = tmp_path / "runs.jsonl"
    assert run_suite(suite, records, 1) == 0
    assert capsys.readouterr().out.count("test ") == 4
    loaded = load(records)
    assert {key_of(r) for r in loaded.records} == {job.key for job in read(suite)}
    assert run_suite(suite, records, 1) == 0
    captured = capsys.readouterr()
    assert "4 of 4 runs are recorded" in captured.err
    assert captured.out == ""
    assert run_table(records, "polystep") == 0
    out = capsys.readouterr().out
    assert "at equal steps" in out
    assert "polystep at equal steps: " in out


def test_only_what_is_missing_is_run(suite, tmp_path, monkeypatch):
    ran = []

    def pretend(self):
        ran.append((self.method, self.seed))
        if len(ran) == 3:
            raise KeyboardInterrupt
        curve = {"value": [0.5], "steps": [2], "evaluations": [8], "seconds": [1.0],
                 "cpu_seconds": [1.0]}  # fmt: skip
        return {"task": self.task, "data": self.data, "method": self.method, "seed": self.seed,
                "budget": {"axis": self.axis, "amount": self.amount}, "steps": 2, "valid": 0.5,
                "options": dict(self.options), "test": 0.5, "test_reads": 1, "curve": curve,
                "seconds": 1.0, "evaluations": 8}  # fmt: skip

    monkeypatch.setattr(Job, "run", pretend)
    records = tmp_path / "runs.jsonl"
    assert run_suite(suite, records, 1) == 130
    assert len(load(records).records) == 2
    assert run_suite(suite, records, 1) == 0
    assert ran == [("polystep", 0), ("polystep", 1), ("random", 0), ("random", 0), ("random", 1)]
    assert remaining(read(suite), load(records).records) == []


def test_two_processes_give_the_same_scores_as_one(suite, tmp_path):
    for number in (1, 2):
        assert run_suite(suite, tmp_path / f"{number}.jsonl", number) == 0
    one, two = (
        {key_of(r): (r["test"], r["curve"]["value"]) for r in load(tmp_path / f"{n}.jsonl").records}
        for n in (1, 2)
    )
    assert one == two


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (SUITE.replace("seeds", "seedz"), ConfigError, "did you mean 'seeds'"),
        (SUITE.replace('"random"', '"randon"'), ConfigError, "did you mean 'random'"),
        (SUITE.replace('["mlp"]', '["mlq"]'), ConfigError, "mlq"),
        (SUITE.replace("population", "popultion"), ConfigError, "did you mean 'population'"),
        (SUITE.replace("budget = 2", "budget = 0"), ConfigError, "got 0"),
        (SUITE.replace("budget = 2\n", ""), ConfigError, "lacks budget"),
        ("data = 'digits'", ConfigError, r"no \[\[run\]\]"),
        ("data = [", DataError, "not TOML"),
    ],
)
def test_a_suite_with_a_mistake_is_refused(tmp_path, text, error, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(error, match=message):
        read(path)


def test_a_missing_suite_is_named(tmp_path):
    with pytest.raises(DataError, match="nowhere.toml cannot be read"):
        read(tmp_path / "nowhere.toml")
