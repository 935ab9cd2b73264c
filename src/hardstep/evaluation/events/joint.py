"""Joint stages: called once for a group of candidates, whose members share what they read.

A row of weights, or of a picture's patches, then comes once from the cache for all members.
"""

from hardstep.evaluation.events.writer import SlotNames, Writer
from hardstep.evaluation.fused.emit_vectors import Value, count_registers
from hardstep.evaluation.fused.expressions import Kind

MEMBERS_AT = 7  # the word of scratch memory that holds how many members a group has


class JointWriter(Writer):
    """A joint stage's function. Its first argument is `NextMember`."""

    def __init__(self, lanes: int, together: int) -> None:
        super().__init__(lanes)
        self.together = together
        self.work += [self.zero() for _ in range(1, together)]
        step = self.word()
        self._arguments = ["%a"]
        for _ in range(1, together):
            last = self._arguments[-1]
            self._arguments.append(self.let(f"getelementptr i64, ptr {last}, i64 {step}"))

    def slots(self, kind: Kind) -> list[SlotNames]:
        """The next six arguments, a changed value of every member."""
        first, found = self.words, []
        for arguments in self._arguments:
            self.arguments, self.words = arguments, first
            found.append(self.slot(kind))
        self.arguments = "%a"
        return found

    def find_size(self, vectors: int) -> int:
        """Into how large parts vectors are cut, so that sums of all members fit into registers.

        Beside the sums stand a number of each member and a vector of what they share.
        """
        registers, each = count_registers()
        most = max(1, (registers - self.together - each) // (each * self.together))
        return -(-vectors // -(-vectors // most))

    def find_members(self) -> Value:
        """How many there are; the last group may have fewer than others."""
        return self.read("i64", "%s", str(MEMBERS_AT))
