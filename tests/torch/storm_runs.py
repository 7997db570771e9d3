"""The runs of the fault storm. A seed determines ranks, layers, calls, the fault and the expected outcome.

Every 30 consecutive seeds contain each kind of fault. The expected outcome is the one promised in docs/errors.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

DEADLINE, MARGIN = 3.5, 2.0
PAUSE = 2.0  # seconds that a slow or innocent rank pauses
PAUSE_AT_DEADLINE = 1.3
SET_UP = 60.0  # seconds for a group and its first steps, in which nothing fails; other runs keep the cores busy
SAMPLE = 30
OWN_MESSAGE = "of its own"
INNOCENT = ("paused", "holds")
LOST = ("killed", "stopped", "ends", "orphaned")

FORWARD = ["routes ahead", "counts", "routes", "weights", "dispatch", "combine", "experts"]
BACKWARD = [
    "agreement",
    "gradient dispatch",
    "router weights",
    "router gradients",
    "weight gradients",
    "gradient return",
    "experts backward",
]
OF_SLOTS = ["routes ahead", "counts", "weights", "dispatcher", "experts"]
OF_SLOTS_BACKWARD = ["weights backward", "weight gradients", "experts backward", "dispatcher backward"]
ONCE = ["routes ahead", "counts", "agreement", "stock", "experts backward"]
"""Phases that occur once a step; the others occur once a chunk."""

Call = tuple[str, int, str]
"""The call, the number of its layer, and how it is called."""


class Spec(NamedTuple):
    """A layer. With `moves`, its steps move weights; without, they run the framework's own collectives.

    With slots, the dispatcher's collectives carry the rows in either case.
    """

    world: str  # "layer", "transformers" or "model"
    experts: int
    chunks: int  # 0: no budget
    moves: bool
    slots: bool = False


class Fault(NamedTuple):
    """What a rank does in the nth collective of a phase, or the nth call of its experts, after the fault is armed."""

    what: str
    rank: int
    phase: str
    nth: int = 0
    layer: int = 0
    after: float = 0.2  # seconds; messages begun before the fault are sent by then
    error: type[BaseException] = ValueError

    @property
    def direction(self) -> str:
        return "backward" if self.phase in BACKWARD + OF_SLOTS_BACKWARD else "forward"

    @property
    def operation(self) -> str:
        return self.phase.removesuffix(" backward")


class Promise(NamedTuple):
    """The outcome that docs/errors.md promises for every surviving rank."""

    error: str = "CommError"  # "" if the run succeeds
    peers: tuple[int, ...] = ()
    or_torch_error: bool = False  # torch's own error is allowed too, if one rank names the fault or `peers` has -1
    says: str = ""
    place: bool = False  # the message names phase, layer and direction of the fault
    seconds: float = DEADLINE + MARGIN
    own: str = ""  # the faulty rank's own error, if it raises one
    alike: bool = False  # all ranks give the same message


class Run(NamedTuple):
    seed: int
    kind: str
    ranks: int
    layers: list[Spec]
    scripts: list[list[Call]]
    promise: Promise
    faults: list[Fault] = []
    faulty_ranks: tuple[int, ...] = ()
    ends: bool = False  # a rank ends as soon as it has its error; else when all ranks have
    warm: bool = True
    store: str = "file"
    two_groups: bool = False  # each half of the ranks is a group with all experts; the groups add their gradients

    def raising(self) -> set[int]:
        """The ranks that raise their own error."""
        return {fault.rank for fault in self.faults if fault.what == "raises"} or set(
            self.faulty_ranks if self.promise.own else ()
        )

    def shown(self) -> str:
        short = self._replace(scripts=[])
        scripts = {rank: script[:20] for rank, script in enumerate(self.scripts) if rank in (*self.faulty_ranks, 0, 1)}
        return f"{short}\n{scripts}"


def steps(numbers: list[int]) -> list[Call]:
    return [(which, number, "") for number in numbers for which in ("forward", "backward")]


def changed_script(script: list[Call], kind: str, layers: int, seeded: random.Random) -> list[Call]:
    """Drops a call, inserts one, or swaps two. Each backward stays after its forward, and the last call stays last."""
    while True:
        made = list(script)
        i, j = sorted(seeded.sample(range(len(script) - 1), 2))
        if kind == "less":
            del made[i]
        elif kind == "more":
            made.insert(i, ("forward", seeded.randrange(layers), ""))
        else:
            made[i], made[j] = made[j], made[i]
        ahead = [0] * layers
        for which, number, _ in made:
            ahead[number] += {"forward": 1, "backward": -1}.get(which, 0)
            if ahead[number] < 0:
                break
        else:
            if made != script:
                return made


class Place(NamedTuple):
    """The place in a step at which a rank fails."""

    slots: bool
    moves: bool
    phase: str


MOVING = [Place(False, True, phase) for phase in FORWARD + BACKWARD]
MOVING += [Place(True, True, phase) for phase in OF_SLOTS + OF_SLOTS_BACKWARD]
NOT_MOVING = [
    Place(slots, False, phase)
    for slots in (False, True)
    for phase in ("counts", "stock", "experts", "experts backward")
]
PLACES = MOVING + NOT_MOVING

BEFORE_SENDING = ["counting", "planning", "arguments"]
"""Phases in which a rank fails before a step has sent anything, or before it has sent its rows."""

ERRORS = [
    ValueError,
    RuntimeError,
    MemoryError,
    KeyError,
    OSError,
    torch.OutOfMemoryError,
    KeyboardInterrupt,
    SystemExit,
]

OTHER_ARGUMENTS = {
    "autocast": "autocast: is not the same on ranks",
    "hidden": "hidden: is not the same on ranks",
    "top_k": "top_k_weights: is not the same on ranks",
    "narrow": "top_k_index: is not the same on ranks",
    "ids": "top_k_index: [0-9]+ expert ids of rank",
    "weights": "weights: is not the same on ranks",
    "frozen": "weights.requires_grad: is not the same on ranks",
}
"""The argument that one rank changes, and what all ranks say."""


class Draft:
    """A run being drawn; `turn` counts the runs of its kind."""

    def __init__(self, seed: int) -> None:
        self.seed, self.kind, self.seeded = seed, CYCLE[seed % SAMPLE], random.Random(seed)
        self.turn = seed // SAMPLE * CYCLE.count(self.kind) + CYCLE[: seed % SAMPLE].count(self.kind)
        self.ranks = self.seeded.choice([2, 3, 4])
        self.step = 5 * self.turn + CYCLE.index(self.kind)  # cycles through all places: 5 does not divide their number
        self.faulty_rank = 0
        self.ahead = False
        self.layers: list[Spec] = []
        self.arm: list[Call] = [("arm", 0, "")]

    @staticmethod
    def make(seed: int) -> Run:
        draft = Draft(seed)
        return KINDS[draft.kind](draft)

    def run(self, scripts: list[list[Call]], promise: Promise, *faults: Fault, **more: Any) -> Run:
        seeded = random.Random(self.seed)
        drawn = {"ends": seeded.random() < 0.3, "store": seeded.choice(["file", "file", "tcp"])}
        faulty = tuple(sorted({fault.rank for fault in faults if fault.what not in INNOCENT})) or (self.faulty_rank,)
        named = Run(self.seed, self.kind, self.ranks, self.layers, scripts, promise, list(faults), faulty)
        return named._replace(**drawn | more)

    def draw_layers(
        self, moves: bool, least: int = 1, most: int = 3, mixed: bool = False, slots: bool | None = None
    ) -> None:
        """`moves` and `slots` hold for every layer (if `mixed`, for the target); all else, and None, is drawn."""
        seeded, count = self.seeded, self.seeded.randint(least, most)
        self.faulty_rank, self.target = seeded.randrange(self.ranks), seeded.randrange(count)
        for n in range(count):
            drawn = n != self.target and mixed
            move = seeded.random() < 0.5 if drawn else moves
            with_slots = seeded.random() < 0.3 if drawn or slots is None else slots
            world = seeded.choice(["layer", "transformers"])
            chunks = seeded.choice([0, 0, 1, 2, 3]) * move * (not with_slots)
            self.layers.append(Spec(world, seeded.choice([12, 24, 48]), chunks, move, with_slots))

    def draw_place(self, places: list[Place], most: int = 3) -> str:
        """Draws the layers; returns the phase in which the faulty rank fails."""
        slots, moves, phase = places[self.step % len(places)]
        self.draw_layers(moves, most=most, mixed=not phase.startswith("experts"), slots=slots)
        self.ahead = phase == "routes ahead" or self.seeded.random() < 0.2
        target = self.layers[self.target]
        return "dispatcher" if phase == "stock" and target.slots and target.world == "layer" else phase

    def round(self) -> list[Call]:
        """All layers' passes, layer by layer or all backwards last; in one block with routes ahead."""
        numbers = list(range(len(self.layers)))
        calls: list[Call] = [("forward", n, "") for n in numbers] + [("backward", n, "") for n in reversed(numbers)]
        calls = steps(numbers) if self.turn % 2 else calls
        return [("ahead", 0, ""), *calls, ("compared", 0, "")] if self.ahead else calls

    @property
    def has_slots(self) -> bool:
        return any(spec.slots for spec in self.layers)

    def fault(self, what: str, phase: str, **given: Any) -> Fault:
        times, layer = 1 if phase in ONCE else max(1, self.layers[self.target].chunks), self.target
        if self.ahead and phase in ("counts", "routes ahead"):  # the block's counts also occur as it ends
            times, layer = 1 + (phase == "counts"), 0
        after = 0.0 if self.seeded.random() < 0.2 else 0.2
        drawn = {"rank": self.faulty_rank, "nth": self.seeded.randrange(times), "layer": layer, "after": after}
        return Fault(what, phase=phase, **drawn | given)

    def promise(self, fault: Fault, rank: int | None = None) -> Promise:
        """The expected outcome of a fault; `rank` is the faulty rank's number in its group, if that differs."""
        of_layer = self.layers[self.target]
        rank = fault.rank if rank is None else rank
        own = fault.error.__name__ if fault.what == "raises" else ""
        others_carry = of_layer.slots or not of_layer.moves
        if others_carry and fault.phase in ("experts backward", "dispatcher backward"):
            return Promise(peers=(-1, rank), or_torch_error=True, own=own)
        if others_carry and fault.what == "late" and fault.phase in ("experts", "weights backward"):
            return Promise(peers=(-1, rank))  # it may be inside a collective that is not ours
        named = rf"rank {rank}( \(global rank {fault.rank}\))?"
        if own:
            waits_there = others_carry and fault.phase in ("weights", "stock", "dispatcher", "experts")
            seconds = DEADLINE + MARGIN if waits_there else DEADLINE / 2
            return Promise(peers=(rank,), says=rf"{named} failed \({own}: .*{OWN_MESSAGE}", seconds=seconds, own=own)
        says = "has not come to" if fault.what == "late" else f"{named} does not answer"
        place = fault.after > 0 and not fault.phase.startswith("experts")
        return Promise(peers=(rank,), says=says, place=place)

    def play(self, promise: Promise, *faults: Fault, **more: Any) -> Run:
        """All ranks play the same script, and the faults happen in it."""
        script = self.round() * self.seeded.randrange(2) + self.arm + self.round() * 3
        return self.run([script] * self.ranks, promise, *faults, **more)


def rank_fails(draft: Draft, what: str, places: list[Place] = PLACES) -> Run:
    """A rank disappears, pauses, or raises: in its experts, in a dispatcher, or between collectives."""
    phase = draft.draw_place(places)
    error = draft.seeded.choice(ERRORS)
    fault = draft.fault(what, phase, error=error)
    return draft.play(draft.promise(fault), fault)


def at_any_moment(draft: Draft) -> Run:
    """A rank disappears at a random moment of training, or of steps without gradients, some of them stock."""
    trains = draft.seeded.random() < 0.5
    draft.draw_layers(True, mixed=not trains)
    draft.ahead = trains and draft.seeded.random() < 0.3
    fault = draft.fault(["killed", "stopped", "ends"][draft.turn % 3], "any moment", after=draft.seeded.uniform(0, 0.5))
    calls = draft.round() if trains else [("forward", n, "no_grad") for n in range(len(draft.layers))]
    promise = Promise(peers=(fault.rank,), says=f"rank {fault.rank} does not answer")
    if trains and draft.has_slots:
        promise = Promise(peers=(-1, fault.rank), or_torch_error=True)
    return draft.run([draft.arm + calls * 1000] * draft.ranks, promise, fault)


def raises_before_sending(draft: Draft) -> Run:
    how = BEFORE_SENDING[draft.turn % len(BEFORE_SENDING)]
    draft.draw_layers(draft.seeded.random() < 0.5)
    own = "InvalidArgument" if how == "arguments" else "MemoryError"
    scripts = [draft.arm + draft.round() for _ in range(draft.ranks)]
    scripts[draft.faulty_rank] = [*draft.arm, ("forward", 0, how)]
    first = draft.layers[0]
    in_stock = how == "planning" and (first.slots or not first.moves)  # the others then are in stock collectives
    seconds = DEADLINE + MARGIN if in_stock else DEADLINE / 2
    says = rf"rank {draft.faulty_rank} failed \({own}: "
    promise = Promise(peers=(draft.faulty_rank,), says=says, seconds=seconds, own=own)
    return draft.run(scripts, promise, warm=draft.seeded.random() < 0.7)


def different_calls(
    draft: Draft, script: list[Call], changed: list[Call], says: str = "", named: bool = False, slots: bool = False
) -> Run:
    """Names the faulty rank if it differs from the majority, or if the message identifies it.

    `slots`: a rank may be in the backward pass of another library's collective, which is not compared.
    """
    scripts = [draft.arm + script for _ in range(draft.ranks)]
    scripts[draft.faulty_rank] = draft.arm + changed
    peers = (draft.faulty_rank,) if named or draft.ranks > 2 else (-1,)
    promise = Promise(peers=peers, says=says or "are at different calls", seconds=DEADLINE, alike=True)
    if slots:
        promise = Promise(peers=(-1, draft.faulty_rank), or_torch_error=True)
    return draft.run(scripts, promise)


def other_calls(draft: Draft) -> Run:
    draft.draw_layers(True, least=2, most=4)
    numbers = draft.seeded.choices(range(len(draft.layers)), k=4)
    script = [*steps(numbers), ("forward", 0, "")]
    changed = changed_script(script, draft.kind, len(draft.layers), draft.seeded)
    return different_calls(draft, script, changed, slots=draft.has_slots)


def backward_passes(draft: Draft) -> Run:
    """One rank swaps two backward passes, or skips one."""
    draft.draw_layers(True, least=2, slots=False)
    numbers = list(range(len(draft.layers)))
    script = [*(("forward", n, "") for n in numbers), *(("backward", n, "") for n in reversed(numbers))]
    changed = list(script)
    i, j = draft.seeded.sample(range(len(numbers), len(script)), 2)
    if draft.kind == "swapped":
        changed[i], changed[j] = changed[j], changed[i]
    else:
        del changed[i]
    last = ("forward", 0, "")
    return different_calls(draft, [*script, last], [*changed, last])


def without_gradients(draft: Draft) -> Run:
    draft.draw_layers(True)
    how, n = draft.seeded.choice(["no_grad", "inference_mode", "detached"]), draft.target
    if how == "detached":  # detached arguments; a transformers layer takes its weights from the module
        draft.layers = [spec._replace(world="layer") for spec in draft.layers]
    last = ("forward", draft.seeded.randrange(len(draft.layers)), "")
    says = f"backward, which rank {draft.faulty_rank} ran without gradients"
    changed: list[Call] = [("forward", n, how), last]
    return different_calls(draft, [*steps([n]), last], changed, says, named=True, slots=draft.layers[n].slots)


def without_gradients_in_stock(draft: Draft) -> Run:
    draft.draw_layers(False)
    scripts = []
    for rank in range(draft.ranks):
        how = draft.seeded.choice(["no_grad", "inference_mode"]) if rank == draft.faulty_rank else ""
        scripts.append([*draft.arm, ("forward", draft.target, how), *draft.round()])
    return draft.run(scripts, Promise(""))


def other_arguments(draft: Draft) -> Run:
    """The faulty rank gives other arguments: all ranks report it, and continue."""
    how = "autocast" if draft.kind == "autocast" else list(OTHER_ARGUMENTS)[1 + draft.turn % (len(OTHER_ARGUMENTS) - 1)]
    draft.draw_layers(draft.seeded.random() < 0.7)
    if how in ("weights", "frozen"):
        draft.layers = [spec._replace(world="layer") for spec in draft.layers]
    scripts = []
    for rank in range(draft.ranks):
        changed = how if rank == draft.faulty_rank else ""
        scripts.append([*draft.arm, ("forward", draft.target, changed), *draft.round()])
    return draft.run(scripts, Promise("InvalidArgument", says=OTHER_ARGUMENTS[how], seconds=2 * DEADLINE, alike=True))


def while_innocent(draft: Draft) -> Run:
    """A rank dies while another is paused or holds the interpreter lock, at once or as the deadline passes."""
    draft.ranks = draft.seeded.choice([3, 4])
    phase = draft.draw_place(MOVING)
    victim = draft.fault(draft.seeded.choice(["killed", "stopped", "ends", "raises"]), phase, after=0.3)
    innocent = (victim.rank + draft.seeded.randrange(1, draft.ranks)) % draft.ranks
    after = draft.seeded.choice([0.05, DEADLINE - 0.5, DEADLINE]) if victim.what == "stopped" else 0.05
    other = victim._replace(what=draft.kind, rank=innocent, after=after)
    promise = draft.promise(victim)
    return draft.play(promise._replace(seconds=DEADLINE + MARGIN, place=False), victim, other)


def in_time(draft: Draft) -> Run:
    """A rank delays the others for less than the deadline: the run succeeds."""
    phase = draft.draw_place(MOVING)
    fault = draft.fault(["slow", "paused", "holds"][draft.turn % 3], phase)
    return draft.play(Promise("", seconds=4 * DEADLINE), fault)


def several(draft: Draft) -> Run:
    draft.ranks = 4
    phase = draft.draw_place(MOVING)
    first = draft.fault(draft.seeded.choice(["killed", "stopped"]), phase, after=0.2)
    other = first._replace(rank=(first.rank + draft.seeded.randrange(1, 4)) % 4)
    promise = draft.promise(first)
    says = "does not answer, nor does rank"
    if draft.turn % 3 == 2:  # either fault may be found first
        other, says = other._replace(what="raises"), ""
    promise = promise._replace(says="" if promise.or_torch_error else says, place=False)
    own = "ValueError" if other.what == "raises" else ""
    return draft.play(promise._replace(peers=(*promise.peers, other.rank), own=own), first, other)


def first_step(draft: Draft) -> Run:
    """No rank can be named before the group's first collective has ended; any rank can be named after it."""
    draft.draw_layers(True, most=1)
    what = draft.seeded.choice(["killed", "stopped"])
    of_step = ["weights", "dispatcher"] if draft.has_slots else ["routes", "types"]
    phase = ["addresses", "meeting", *of_step][draft.turn % 4]
    fault = draft.fault(what, phase, nth=0, after=0.2)
    peer, says = fault.rank, "does not answer"
    if phase in ("addresses", "meeting"):
        peer, says = -1, "no rank (can be named|is known)"
    script = draft.arm + draft.round()
    return draft.run([script] * draft.ranks, Promise(peers=(peer,), says=says), fault, warm=False)


def split_expert_groups(draft: Draft) -> Run:
    """Each pair of ranks holds all experts. Collectives that are not ours add gradients between the pairs."""
    draft.ranks = 4
    fault = draft.fault(draft.seeded.choice(["killed", "stopped", "raises"]), draft.draw_place(MOVING, most=2))
    promise = draft.promise(fault, fault.rank % 2)
    if draft.turn % 3 == 2:
        fault = Fault("killed", draft.faulty_rank, "any moment", after=draft.seeded.uniform(0, 0.5))
        promise = draft.promise(fault, fault.rank % 2)
        if any(spec.slots or not spec.moves for spec in draft.layers):
            promise = Promise(peers=(-1, fault.rank % 2))
    script: list[Call] = []
    for call in draft.round():
        script += [call, ("add", call[1], "")] if call[0] == "backward" else [call]
    promise = promise._replace(or_torch_error=True, place=False, seconds=DEADLINE + MARGIN)
    more = (
        {"ends": True} if fault.phase == "any moment" else {}
    )  # else the other group waits for a rank that its own error stopped
    return draft.run([draft.arm + script * 1000] * 4, promise, fault, two_groups=True, **more)


def in_a_model(draft: Draft) -> Run:
    slots, moves, phase = PLACES[draft.step % len(PLACES)]
    draft.ranks = draft.seeded.choice([2, 4])
    two_groups = draft.ranks == 4 and draft.seeded.random() < 0.5
    draft.layers = [Spec("model", 8, 0, moves, slots)]
    draft.faulty_rank, draft.target = draft.seeded.randrange(draft.ranks), 0
    draft.ahead = phase == "routes ahead" or draft.seeded.random() < 0.2
    fault = draft.fault(draft.seeded.choice(["killed", "stopped", "raises"]), phase, after=0.2)
    named = fault.rank % (draft.ranks // (1 + two_groups))
    promise = draft.promise(fault, named)
    says = promise.says and f"{promise.says}|no rank"
    promise = promise._replace(or_torch_error=True, says=says, place=False, seconds=DEADLINE + MARGIN)
    return draft.play(promise, fault, two_groups=two_groups)


KINDS: dict[str, Callable[[Draft], Run]] = {
    "killed": lambda draft: rank_fails(draft, "killed"),
    "stopped": lambda draft: rank_fails(draft, "stopped"),
    "late": lambda draft: rank_fails(draft, "late"),
    "ends": lambda draft: rank_fails(draft, "ends"),
    "orphaned": lambda draft: rank_fails(draft, "orphaned"),
    "any moment": at_any_moment,
    "raises": lambda draft: rank_fails(draft, "raises", MOVING),
    "raises before sending": raises_before_sending,
    "raises in stock": lambda draft: rank_fails(draft, "raises", NOT_MOVING),
    "order": other_calls,
    "less": other_calls,
    "more": other_calls,
    "swapped": backward_passes,
    "skipped": backward_passes,
    "without gradients": without_gradients,
    "without gradients in stock": without_gradients_in_stock,
    "autocast": other_arguments,
    "types": other_arguments,
    "paused": while_innocent,
    "holds": while_innocent,
    "in time": in_time,
    "several": several,
    "first step": first_step,
    "two groups": split_expert_groups,
    "model": in_a_model,
}
CYCLE = [*KINDS, "killed", "stopped", "raises", "late", "model"]
assert len(CYCLE) == SAMPLE
