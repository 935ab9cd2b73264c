"""All targets, by name."""

from tests.fuzz.archives import Archive
from tests.fuzz.commands import CommandLine
from tests.fuzz.formulas import Dimacs, MaxSat
from tests.fuzz.kernels import Kernel
from tests.fuzz.record_files import PackedRecords, Records
from tests.fuzz.saved_runs import LogOfFit, LogOfTrain, ResultOfTrain, SavedByFit, SavedByTrain
from tests.fuzz.suites import Suite
from tests.fuzz.target import Target
from tests.fuzz.task_files import TaskFile

ALL: tuple[Target, ...] = (
    SavedByFit(),
    SavedByTrain(),
    ResultOfTrain(),
    LogOfFit(),
    LogOfTrain(),
    Records(),
    PackedRecords(),
    Suite(),
    TaskFile(),
    Dimacs(),
    MaxSat(),
    Kernel(),
    Archive(),
    CommandLine(),
)
TARGETS = {target.name: target for target in ALL}
