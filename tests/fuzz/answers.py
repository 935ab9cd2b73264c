"""The program called in this process, and what it may answer."""

import builtins
import io
import os
import re
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import hardstep
from hardstep.cli.main import main
from hardstep.errors import HardstepError

ACCEPTED, REFUSED = "accepted", "refused"
MOST_CHARACTERS = 2_000  # of a refusal; a value that is longer should have been shortened
MOST_LINES = 4
MOST_LINES_OF_USAGE, LINE_OF_USAGE = 16, 50  # in typer's box, which quotes long values whole
_OURS = str(Path(hardstep.__file__).parent)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ERRORS = [name for name, kind in vars(builtins).items() if isinstance(kind, type)
           and issubclass(kind, BaseException)]  # fmt: skip
_ERRORS += ["JSONDecodeError", "TOMLDecodeError", "UnpicklingError", "BadZipFile", "BadGzipFile"]
_PYTHON = re.compile(rf"\b(?:{'|'.join(_ERRORS)})\b|<class '|object at 0x|Traceback \(most")


class Fault(Exception):
    """An answer that is none: what is wrong with it, and the line of ours that it comes from."""

    def __init__(self, what: str, where: str = "", said: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.said = what, where, said


class Reached(BaseException):
    """The work would begin here: everything before has accepted the input."""


class Answer(NamedTuple):
    """What a command printed and returned; no code if its work would have begun."""

    code: int | str | None
    out: str
    err: str
    error: BaseException | None


def ask(*arguments: str) -> Answer:
    """What `hardstep` with these arguments answers; what it raises beyond that is raised."""
    out, err = _stream("strict"), _stream("backslashreplace")  # as Python opens the real ones
    code: int | str | None = None
    error: BaseException | None = None
    before = sys.argv
    sys.argv = ["hardstep", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        code, error = ended.code or 0, ended.__context__
    except Reached:
        pass
    finally:
        sys.argv = before
    return Answer(code, _text(out), _text(err), error)


def _stream(errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), "utf-8", errors, newline="\n", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8", "backslashreplace")


def judge(answer: Answer, given: str, *, own_code: bool = False) -> str:
    """Whether the input was accepted or refused.

    Args:
        answer: Of the program.
        given: The input as text; what stands in it may be quoted.
        own_code: The input is Python, which prints and raises what it likes.

    Raises:
        Fault: Neither, or not in one plain sentence.
    """
    where = find_place(answer.error)
    if not own_code and _CONTROL.search(answer.out + answer.err):
        raise Fault("a control character is printed", where, answer.out + answer.err)
    if answer.code in (0, None):
        return ACCEPTED
    if answer.code == 130 and own_code and "KeyboardInterrupt" in given:
        return REFUSED
    if answer.code != 2:
        raise Fault(f"exit code {answer.code}", where, answer.err)
    _, mark, sentence = answer.err.rpartition("hardstep: ")
    if mark and _CONTROL.search(sentence):  # a task may print what it likes, but not we for it
        raise Fault("a control character is printed", where, sentence)
    if mark:
        check_sentence(sentence, where, given, own_code=own_code)
    elif not any(word in answer.out + answer.err for word in ("Usage: ", "─ Error ─")):
        raise Fault("refused without a sentence", where, answer.err)
    elif answer.err.count("\n") > MOST_LINES_OF_USAGE + len(given) // LINE_OF_USAGE:
        raise Fault("a refusal is long", where, answer.err)
    return REFUSED


def refuse(error: HardstepError, given: str) -> str:
    """A refusal by a function of the library; only the program writes to terminals.

    Raises:
        Fault: Its message is not a plain sentence.
    """
    check_sentence(str(error), find_place(error), given)
    return REFUSED


def check_sentence(said: str, where: str, given: str, *, own_code: bool = False) -> None:
    """Refuse a message that is long, or in the words of Python.

    Raises:
        Fault: It is.
    """
    if len(said) > MOST_CHARACTERS or said.strip().count("\n") >= MOST_LINES:
        raise Fault("a refusal is long", where, said)
    if not said.strip():
        raise Fault("a refusal is empty", where, said)
    found = _PYTHON.search(said)
    if found and not own_code and found[0] not in given:
        raise Fault(f"a refusal says {found[0]}", where, said)


def find_place(error: BaseException | None) -> str:
    """The innermost line of ours that an error passed: `bench/records.py:81 in load`."""
    if error is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
    if ours:
        return f"{os.path.relpath(ours[-1].filename, _OURS)}:{ours[-1].lineno} in {ours[-1].name}"
    return f"{Path(frames[-1].filename).name} in {frames[-1].name}" if frames else ""


def close(*names: str) -> None:
    """Let these functions of `hardstep.cli`, where work begins, end a command instead."""
    for name in names:
        place, _, function = name.rpartition(".")
        setattr(resolve_name(f"hardstep.cli.{place}"), function, _reach)


def _reach(*args: Any, **kwargs: Any) -> None:
    raise Reached
