"""Teams as Python sees them: numbers, barriers, peer views, and what is refused."""

import pytest
from mori.errors import InvalidError, MismatchError, StateError
from pes import on_processes, on_threads


def halves_body(context):
    team = context.team_by_color(context.pe % 2)
    assert team.pes == tuple(range(context.pe % 2, 4, 2))
    assert team.pe == context.pe // 2
    assert team.translate(1) == 2 + context.pe % 2
    block = context.array(2, "int32")
    block[:] = -1
    context.barrier_all()
    for other in range(team.pe_count):
        team.peer_view(block, other)[team.pe] = context.pe
    team.barrier()
    assert list(block) == list(team.pes)
    used = context.heap_stats().used
    context.barrier_all()
    team.free()
    context.free(block)
    assert context.heap_stats().used < used
    with pytest.raises(StateError, match="freed"):
        team.barrier()
    team.free()
    return context.heap_stats().used


def test_halves_between_processes():
    assert on_processes(4, halves_body) == [0] * 4


def test_lists_strides_and_nodes():
    def body(context):
        node = context.team_by_node()
        assert (node.pe, node.pes) == (context.pe, (0, 1, 2))
        backwards = context.team_strided(2, -1, 3)
        assert backwards.pes == (2, 1, 0)
        pair = context.team([2, 0])
        assert backwards.translate(0, pair) == 0
        assert backwards.translate(1, pair) is None
        assert pair.pe == {2: 0, 0: 1}.get(context.pe)
        backwards.barrier()
        if pair.pe is None:
            with pytest.raises(StateError, match="that PE 1 is not in"):
                pair.barrier()
        else:
            pair.barrier()
        assert repr(pair) == f"<mori.shmem.Team: PE {pair.pe} of 2>"
        with pytest.raises(InvalidError, match=r"pe 2 is outside 0 \.\. 1 of the team"):
            pair.group_pe(2)

    on_threads(3, body)


def test_refusals():
    def body(context):
        with pytest.raises(InvalidError, match="pes is empty"):
            context.team([])
        with pytest.raises(InvalidError, match="pe 1 is in the team twice"):
            context.team([1, 1])
        with pytest.raises(InvalidError, match="pe is 'x', expected an integer"):
            context.team(["x"])
        with pytest.raises(MismatchError, match="PE 0 and PE 1 have asked for different ones"):
            context.team([context.pe])
        team = context.team([0])
        context.barrier_all()
        return team

    teams = on_threads(2, body)
    with pytest.raises(StateError, match="finalized"):
        teams[0].barrier()
