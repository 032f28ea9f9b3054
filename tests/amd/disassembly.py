"""The instructions of an AMD code object, as llvm-objdump prints them, and how control flows
through them: basic blocks, dominators, natural loops. What the rules in scopes.py are stated over.

Nothing here knows about mori. Calls are taken to return; indirect jumps end a function.
"""

import dataclasses
import functools
import re
import subprocess

HEAD = re.compile(r"^[0-9a-f]+ <(.+)>:$")
LINE = re.compile(r"^\s+(\S+)(?:\s+(.*?))?\s*//\s+([0-9A-F]+):")
# Instructions after which the next one is not reached.
ENDS = {"s_endpgm", "s_setpc_b64", "s_branch", "s_trap"}
SHORT_JUMP = re.compile(r"s_(branch|cbranch_\w+)$")


@dataclasses.dataclass(frozen=True)
class Instruction:
    address: int
    name: str
    operands: str

    def has(self, *words):
        """Whether the modifiers are all there."""
        return set(words) <= set(self.operands.replace(",", " ").split())

    def __str__(self):
        return f"{self.address:#x}: {self.name} {self.operands}".rstrip()

    @functools.cached_property
    def target(self):
        """Where a branch goes, else None. The operand counts words from the next instruction."""
        if not SHORT_JUMP.match(self.name):
            return None
        distance = int(self.operands.split()[0])
        return self.address + 4 + 4 * (distance - (1 << 16 if distance >= 1 << 15 else 0))


class Function:
    """Blocks are lists of instructions; block 0 is the entry."""

    def __init__(self, name, instructions):
        self.name, self.instructions = name, instructions
        starts = self._starts()
        self.blocks = []
        for instruction in instructions:
            if instruction.address in starts:
                self.blocks.append([])
            self.blocks[-1].append(instruction)
        place = {block[0].address: i for i, block in enumerate(self.blocks)}
        self.successors = [self._successors(i, place) for i in range(len(self.blocks))]

    def _starts(self):
        starts = {self.instructions[0].address}
        for before, after in zip(self.instructions, self.instructions[1:], strict=False):
            if before.target is not None:
                starts.add(before.target)
            if before.target is not None or before.name in ENDS:
                starts.add(after.address)
        return starts

    def _successors(self, index, place):
        last = self.blocks[index][-1]
        found = set()
        if last.target in place:
            found.add(place[last.target])
        if last.name not in ENDS and index + 1 < len(self.blocks):
            found.add(index + 1)
        return found

    @functools.cached_property
    def predecessors(self):
        found = [set() for _ in self.blocks]
        for block, successors in enumerate(self.successors):
            for successor in successors:
                found[successor].add(block)
        return found

    def _order(self):
        """Blocks that the entry reaches, in reverse postorder."""
        order, seen, stack = [], {0}, [(0, iter(self.successors[0]))]
        while stack:
            block, rest = stack[-1]
            following = next((s for s in rest if s not in seen), None)
            if following is None:
                order.append(block)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(self.successors[following])))
        return order[::-1]

    @functools.cached_property
    def dominators(self):
        """Block -> the blocks on every way to it, as bits of an integer; reached blocks only."""
        order = self._order()
        every = (1 << len(self.blocks)) - 1
        found = dict.fromkeys(order, every)
        found[0], changed = 1, True
        while changed:
            changed = False
            for block in order[1:]:
                common = every
                for before in self.predecessors[block]:
                    common &= found.get(before, every)
                if found[block] != common | 1 << block:
                    found[block], changed = common | 1 << block, True
        return found

    @functools.cached_property
    def loops(self):
        """Natural loops as sets of blocks, smallest first."""
        bodies = {}
        for block, dominators in self.dominators.items():
            for head in self.successors[block]:
                if dominators >> head & 1:
                    bodies.setdefault(head, {head}).update(self._body(head, block))
        return sorted(bodies.values(), key=len)

    def _body(self, head, last):
        body, rest = {head, last}, [last]
        while rest:
            block = rest.pop()
            if block != head:
                new = self.predecessors[block] - body
                body |= new
                rest.extend(new)
        return body

    def loop_around(self, block):
        """The innermost loop around a block, None outside of loops."""
        return next((loop for loop in self.loops if block in loop), None)

    def instructions_of(self, blocks):
        return [instruction for block in sorted(blocks) for instruction in self.blocks[block]]


def parse(listing):
    """Function name -> Function, from what llvm-objdump -d printed."""
    functions, current = {}, None
    for line in listing.splitlines():
        if head := HEAD.match(line):
            current = functions.setdefault(head[1], [])
        elif (found := LINE.match(line)) and current is not None:
            current.append(Instruction(int(found[3], 16), found[1], found[2] or ""))
    return {name: Function(name, listed) for name, listed in functions.items() if listed}


def disassemble(objdump, path):
    command = [objdump, "-d", "--no-show-raw-insn", str(path)]
    return parse(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
