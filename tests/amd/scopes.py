"""Rules about how kernels speak to peers, checked over the instructions. What an emulator cannot
show (its memory is sequentially consistent) is looked for here, as far as it can be seen:

polls      A wait is a loop with s_sleep. Every load in the innermost such loop carries system
           scope, so that it sees what other GPUs and the host store; and after one of them, with
           no other access between, the caches are invalidated for what was released with the flag.
meetings   Waits of the blocks of one launch for each other: the same at device scope.
signals    Stores and atomics at system scope (on gfx90a: those right after a write-back). After a
           write-back at system scope the next store or atomic of the same basic block, if there is
           one before a barrier, is one: it is the flag.
copies     Loops that move at least 4 * 16 bytes per lane in flight.

That each write-back is waited for is looked for by check_objects.py of mori-device.

What the scopes are (LLVM's "Memory Model gfx90a" and "gfx942", of its user guide for AMDGPU):
                    load     store    atomic   write-back           invalidate
  gfx90a    device  glc                                             buffer_wbinvl1_vol
            system  glc                        buffer_wbl2          buffer_invl2, buffer_wbinvl1_vol
  gfx942/50 device  sc1      sc1               buffer_wbl2 sc1      buffer_inv sc1
            system  sc0 sc1  sc0 sc1  sc1      buffer_wbl2 sc0 sc1  buffer_inv sc0 sc1
"""

import dataclasses

FAMILIES = ("global_", "flat_", "scratch_", "buffer_")
IN_FLIGHT = 4


@dataclasses.dataclass(frozen=True)
class Scope:
    """Modifiers by kind of access, and the instructions that go with them."""

    load: tuple
    store: tuple
    atomic: tuple
    write_back: tuple
    invalidate: tuple  # of (name, modifiers), in this order


@dataclasses.dataclass(frozen=True)
class Scopes:
    device: Scope
    system: Scope


GFX90A = Scopes(
    Scope(("glc",), (), (), (), (("buffer_wbinvl1_vol", ()),)),
    Scope(("glc",), (), (), (), (("buffer_invl2", ()), ("buffer_wbinvl1_vol", ()))),
)
GFX940 = Scopes(
    Scope(("sc1",), ("sc1",), (), ("sc1",), (("buffer_inv", ("sc1",)),)),
    Scope(
        ("sc0", "sc1"), ("sc0", "sc1"), ("sc1",), ("sc0", "sc1"), (("buffer_inv", ("sc0", "sc1")),)
    ),
)
SCOPES = {"gfx90a": GFX90A, "gfx942": GFX940, "gfx950": GFX940}


@dataclasses.dataclass
class Facts:
    """What was found; `faults` say what is wrong."""

    polls: int = 0
    meetings: int = 0
    signals: int = 0
    copies: int = 0
    flat: int = 0  # accesses that do not know which memory they go to
    faults: list = dataclasses.field(default_factory=list)

    def __add__(self, other):
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Facts(*(mine + theirs for mine, theirs in pairs))


def kind_of(instruction):
    """load, store, atomic, or None for what is no access to memory."""
    if not instruction.name.startswith(FAMILIES):
        return None
    kind = instruction.name.split("_")[1]
    return kind if kind in ("load", "store", "atomic") else None


def is_at(scope, instruction):
    return instruction.has(*getattr(scope, kind_of(instruction)))


def invalidates_next(scope, instructions):
    """Whether the caches are invalidated before the next access or the block's end."""
    wanted = list(scope.invalidate)
    for instruction in instructions:
        if kind_of(instruction):
            return False
        if instruction.name == wanted[0][0] and instruction.has(*wanted[0][1]):
            wanted.pop(0)
            if not wanted:
                return True
    return False


def loads_of(function, loop):
    """(load, the rest of its block) of a loop, without private memory."""
    for block in sorted(loop):
        for i, instruction in enumerate(function.blocks[block]):
            if kind_of(instruction) == "load" and not instruction.name.startswith("scratch_"):
                yield instruction, function.blocks[block][i + 1 :]


def check_poll(scopes, function, loop):
    """A wait at system scope if anything in it acquires there, else one at device scope."""
    loads = list(loads_of(function, loop))
    where = f"the wait at {function.blocks[min(loop)][0].address:#x}"
    for scope, facts in ((scopes.system, Facts(polls=1)), (scopes.device, Facts(meetings=1))):
        if any(invalidates_next(scope, rest) for _, rest in loads):
            wanted = " ".join(scope.load)
            facts.faults = [
                f"{where} polls without {wanted}: {load}"
                for load, _ in loads
                if not is_at(scope, load)
            ]
            return facts
    fault = "is not followed by an invalidation of the caches" if loads else "polls nothing"
    return Facts(faults=[f"{where} {fault}"])


def check_polls(scopes, function):
    """Each loop that sleeps, once."""
    loops = {}
    for i, block in enumerate(function.blocks):
        if any(instruction.name == "s_sleep" for instruction in block):
            loop = function.loop_around(i)
            if loop is not None:
                loops[min(loop)] = loop
    return sum((check_poll(scopes, function, loop) for loop in loops.values()), Facts())


def check_signals(scope, function):
    facts = Facts()
    for block in function.blocks:
        released = False
        for instruction in block:
            kind = kind_of(instruction)
            if instruction.name == "buffer_wbl2":
                released = instruction.has(*scope.write_back)
            elif instruction.name == "s_barrier":
                released = False
            elif kind in ("store", "atomic"):
                # On gfx90a stores carry no scope: those count that follow a write-back.
                facts.signals += is_at(scope, instruction) and (released or bool(scope.store))
                if released and not is_at(scope, instruction):
                    wanted = " ".join(getattr(scope, kind))
                    facts.faults.append(f"signals without {wanted}: {instruction}")
                released = False
    return facts


def count_copies(function):
    found = 0
    for loop in function.loops:
        names = [instruction.name for instruction in function.instructions_of(loop)]
        wide = [name for name in names if name.endswith("_dwordx4")]
        loads = sum(name.startswith(("global_load", "flat_load")) for name in wide)
        stores = sum(name.startswith(("global_store", "flat_store")) for name in wide)
        found += loads >= IN_FLIGHT and stores >= IN_FLIGHT
    return Facts(copies=found)


def facts_of(architecture, function):
    """What the rules find in one function."""
    scopes = SCOPES[architecture]
    flat = sum(
        kind_of(instruction) is not None and instruction.name.startswith("flat_")
        for instruction in function.instructions
    )
    return (
        check_polls(scopes, function)
        + check_signals(scopes.system, function)
        + count_copies(function)
        + Facts(flat=flat)
    )
