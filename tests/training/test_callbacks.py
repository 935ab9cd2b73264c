import io
import json
import re

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import hardstep
from hardstep.training import (
    ACCURACY,
    CoverageLog,
    JsonlLog,
    LiveLine,
    ProgressBar,
    TensorBoard,
    Validation,
)
from tests.training.small import batches, model, optimizer


def run(steps=4, **options):
    net = model()
    valid = Validation(batches(num=32), ACCURACY, every=2)
    return hardstep.fit(net, batches(), valid, optimizer=optimizer(net), steps=steps, **options)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_log_has_a_line_per_step_and_validation(tmp_path):
    run(callbacks=[JsonlLog(tmp_path / "log.jsonl")])
    rows = read(tmp_path / "log.jsonl")
    assert [r["step"] for r in rows if r["event"] == "step"] == [1, 2, 3, 4]
    assert [r["step"] for r in rows if r["event"] == "validation"] == [2, 4]
    per_step = {r["evaluations"] for r in rows if r["event"] == "step"}
    assert per_step == {optimizer(model()).evaluations_per_step}


def test_a_resumed_log_has_every_step_once_even_after_a_torn_line(tmp_path):
    log, path = tmp_path / "log.jsonl", tmp_path / "run.pt"
    run(steps=3, callbacks=[JsonlLog(log)], checkpoint=path)
    with log.open("a") as file:
        file.write(json.dumps({"event": "step", "step": 4, "loss": 1.0}) + "\n")
        file.write('{"event": "step", "st')
    run(steps=6, callbacks=[JsonlLog(log)], checkpoint=path, resume=True)
    assert [r["step"] for r in read(log) if r["event"] == "step"] == [1, 2, 3, 4, 5, 6]


def test_a_new_run_starts_a_new_log_and_the_old_ones_are_kept_beside_it(tmp_path):
    for steps in (2, 3, 4):
        stream = io.StringIO()
        run(steps=steps, callbacks=[JsonlLog(tmp_path / "log.jsonl"), ProgressBar(stream)])
    taken = {
        path.name: len([row for row in read(path) if row["event"] == "step"])
        for path in tmp_path.iterdir()
    }
    assert taken == {"log.1.jsonl": 2, "log.2.jsonl": 3, "log.jsonl": 4}
    assert "is the log of an earlier run, now kept as" in stream.getvalue()
    assert stream.getvalue().splitlines()[0].endswith("log.2.jsonl")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_the_losses_and_the_metric(tmp_path):
    log = tmp_path / "log.jsonl"
    run(callbacks=[TensorBoard(tmp_path / "tb"), JsonlLog(log)])
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    losses = [r["loss"] for r in read(log) if r["event"] == "step"]
    assert [e.step for e in events.Scalars("step/loss")] == [1, 2, 3, 4]
    assert [e.value for e in events.Scalars("step/loss")] == pytest.approx(losses, rel=1e-6)
    assert len(events.Scalars("validation/accuracy")) == 2


def test_coverage_is_logged_every_so_many_steps_and_at_the_end(tmp_path):
    path = tmp_path / "coverage.jsonl"
    run(callbacks=[CoverageLog(path, every=3)])
    rows = read(path)
    assert [row["step"] for row in rows] == [3, 4]
    assert rows[-1]["conditions"]["viii"] == "measured"
    assert rows[-1]["spread"] >= rows[0]["spread"] > 0


def test_no_bar_and_no_control_codes_away_from_a_terminal():
    stream = io.StringIO()
    run(callbacks=[ProgressBar(stream)])
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "\r" not in text
    assert re.match(r"step 1/4  \S+ m?s left  loss ", text)
    assert "evals/s" in text


@pytest.fixture
def clock(monkeypatch):
    """The seconds that callbacks see."""
    seconds = [0.0]
    monkeypatch.setattr("hardstep.training.callbacks.time.monotonic", lambda: seconds[0])
    return seconds


def show_steps(clock, times, steps=100, done=0):
    """What a line away from a terminal tells of the time left, step by step."""
    stream = io.StringIO()
    line = LiveLine(stream)
    line.start(steps, done)
    for step, clock[0] in enumerate(times, done + 1):
        line.show(step, steps, "")
    return re.findall(r"(\S+ \S+) left", stream.getvalue())


def test_the_time_left_is_that_of_the_steps_left(clock):
    assert show_steps(clock, [60, 120, 180], steps=50) == ["49 min", "48 min", "47 min"]


def test_the_first_step_is_forgotten(clock):
    """It compiles; and steps may be longer than any window of time."""
    times = [3600, *(3600 + 60 * n for n in range(1, 25))]
    told = show_steps(clock, times)
    assert (told[0], told[-1]) == ("99 h", "75 min")


def test_steps_before_a_resume_took_no_time_of_this_session(clock):
    assert show_steps(clock, [60], done=90) == ["9 min"]


def test_nothing_is_told_of_a_run_whose_length_is_not_known(clock):
    assert show_steps(clock, [60, 120], steps=None) == []


def test_a_resumed_run_tells_its_line_where_it_was(tmp_path, monkeypatch):
    run(steps=3, checkpoint=tmp_path / "run.pt")
    started = []
    monkeypatch.setattr(LiveLine, "start", lambda self, *given: started.append(given))
    run(
        steps=6, callbacks=[ProgressBar(io.StringIO())], checkpoint=tmp_path / "run.pt", resume=True
    )
    assert started == [(6, 3)]


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self):
        return True


def test_the_bar_on_a_terminal_shows_loss_validation_and_speed(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    bar = ProgressBar(stream)
    bar.line.console.width = 120
    run(callbacks=[bar])
    text = stream.getvalue()
    for part in ("step", "left", "loss", "valid", "%", "evals/s"):
        assert part in text


def test_the_step_is_there_on_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    line = LiveLine(stream)
    line.console.width = 80
    line.start(400)
    line.show(12, 400, f"loss 0.123  {'a path that is too long, ' * 3}")
    line._bar.refresh()
    line.close()
    assert "step 12/400  " in stream.getvalue()
