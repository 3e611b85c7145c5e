"""agree: one value of host bytes for all ranks, at one place in the order."""
import asyncio
import pickle

import pytest

import troupe


def agree_each(world, rule, values, **options):
    replies = [world.rank(rank).lane("agree").agree(rule, value, **options) for rank, value in enumerate(values)]
    return [reply.result(20).agreed for reply in replies]


def test_ranks_agree_on_one_value(world):
    made = agree_each(world, "min", [7, -3, 5])
    assert [one.integer for one in made] == [-3] * 3
    assert made[0] == made[1] == made[2]
    assert made[0].epoch == world.status.epoch
    again = agree_each(world, "sum", [[1, 2], [3, 4], [5, 6]])
    assert again[1].integers == (9, 12)
    assert again[1].position == made[1].position + 1


@pytest.mark.parametrize("rule, values, wanted", [
    ("any_of", [b"\x01", b"\x02", b"\x00"], b"\x03"),
    ("all_of", [b"\x07", b"\x03", b"\x0b"], b"\x03"),
    ("of_rank", ["", "", "the plan"], b"the plan")])
def test_bytes_and_texts(world, rule, values, wanted):
    assert agree_each(world, rule, values, root=2 if rule == "of_rank" else 0)[0].value == wanted


def test_sets_and_gathers(world):
    assert agree_each(world, "union_of", [[3, 1], [], [1, 9]])[2].integers == (1, 3, 9)
    gathered = agree_each(world, "gather_all", [b"a", b"", b"cd"])[1]
    assert gathered.parts == (b"a", b"", b"cd")
    assert pickle.loads(pickle.dumps(gathered)) == gathered


def test_different_rules_are_refused_at_all_ranks(world):
    mine = world.rank(0).lane("differ")
    replies = [mine.agree("min", 1), world.rank(1).lane("differ").agree("max", 1),
               world.rank(2).lane("differ").agree("min", 1)]
    for reply in replies:
        with pytest.raises(troupe.Mismatch, match="agree by min"):
            reply.result(20)


def test_a_missing_rank_is_told_to_all_alike(world):
    replies = [world.rank(rank).lane("missing").agree("sum", 1, deadline=0.05 if rank == 0 else 20) for rank in range(2)]
    errors = [reply.exception(20) for reply in replies]
    assert [type(one) for one in errors] == [troupe.DeadlineExceeded] * 2
    assert str(errors[0]).split(":", 1)[1] == str(errors[1]).split(":", 1)[1] or "rank 2" in str(errors[1])


def test_a_world_orders_one_value(world):
    async def ask():
        return [(await world.agree(value)).agreed for value in ("first", "second")]

    first, second = asyncio.run(ask())
    assert (first.value, second.value) == (b"first", b"second")
    assert second.position == first.position + 1


def test_contributions_that_are_too_large_or_no_integers_are_refused(world):
    with pytest.raises(troupe.InvalidArgument, match="integers of 64 bits"):
        world.rank(0).agree("min", [1 << 63])
    replies = [world.rank(rank).lane("large").agree("of_rank", b"x" * 4097 if rank == 0 else b"") for rank in range(3)]
    for reply in replies:  # what one rank asks wrongly is refused at all ranks, when all have asked
        with pytest.raises(troupe.InvalidArgument, match="limit is 4096"):
            reply.result(20)
    with pytest.raises(troupe.InvalidArgument, match="agreement rule"):
        world.rank(0).agree("median", 1)


def test_other_completions_have_no_value(world):
    assert world.barrier().result(20).agreed is None
