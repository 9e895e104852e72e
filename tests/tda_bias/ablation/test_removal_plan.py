"""Which networks sets of heads leave, and how much of each is run."""

from hypothesis import given
from hypothesis import strategies as st

from tda_bias.ablation.removal import layers_run, removal_plan
from tda_bias.types import HeadId

LAYERS = 5
HEADS = st.builds(HeadId, st.integers(0, LAYERS - 1), st.integers(0, 2))
SETS = st.lists(st.lists(HEADS, max_size=4, unique=True), min_size=1, max_size=8)


def lacking(plan, index):
    """The heads that a network lacks, gathered on the way up to the whole one."""
    heads = set()
    while index >= 0:
        node = plan[index]
        heads |= {HeadId(node.layer, head) for head in node.heads}
        index = node.parent
    return heads


@given(SETS)
def test_every_set_is_read_from_the_network_without_it(sets):
    plan = removal_plan(sets)
    owner = {number: index for index, node in enumerate(plan) for number in node.sets}
    assert sorted(owner) == list(range(len(sets)))
    for number, heads in enumerate(sets):
        assert lacking(plan, owner[number]) == set(heads)


@given(SETS)
def test_no_network_is_run_twice(sets):
    plan = removal_plan(sets)
    networks = [(frozenset(lacking(plan, i)), node.layer) for i, node in enumerate(plan)]
    assert len(set(networks)) == len(networks)


@given(SETS)
def test_a_network_begins_above_its_parent_which_hands_on_what_it_needs(sets):
    plan = removal_plan(sets)
    assert (plan[0].parent, plan[0].heads) == (-1, ())
    for index, node in enumerate(plan[1:], 1):
        assert node.parent < index
        parent = plan[node.parent]
        assert node.layer in parent.branches
        assert parent.layer < node.layer or node.parent == 0
    layers = [node.layer for node in plan[1:]]
    assert layers == sorted(layers)


@given(SETS)
def test_sharing_never_runs_more_layers_than_one_set_after_the_other(sets):
    alone = sum(LAYERS - min((head.layer for head in heads), default=0) for heads in sets)
    whole = 0 if [] in sets else max(min(h.layer for h in heads) for heads in sets)
    assert layers_run(removal_plan(sets), LAYERS) <= alone + whole


def test_sets_that_agree_below_share_what_is_below():
    a, b, c = HeadId(1, 0), HeadId(3, 0), HeadId(3, 1)
    plan = removal_plan([[], [a, b], [c, a], [b]])
    assert len(plan) == 5  # whole, without a, without a and b, a and c, b
    # 5 whole, 2 between a and its branches, 2 for each of the three that are read
    assert layers_run(plan, LAYERS) == 5 + 2 + 3 * 2
    assert layers_run(removal_plan([[a, b], [a, c]]), LAYERS) == 1 + 2 + 2 * 2
