"""The runs of the storm of faults: a seed says the ranks, the layers, their calls, the fault, and what must come of it.

Every 30 seeds have each kind of fault. What must come of it is what docs/errors.md promises.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

DEADLINE, MARGIN = 3.5, 2.0
PAUSE = 2.0  # of a rank that is innocent, or slow
PAUSE_AT_DEADLINE = 1.3
SET_UP = 60.0  # of a group and its first steps: other runs keep the cores busy, and nothing fails there
SAMPLE = 30
OWN = "of its own"
INNOCENT = ("paused", "holds")
LOST = ("killed", "stopped", "ends", "orphaned")

FORWARD = ["counts", "routes", "weights", "dispatch", "combine", "experts"]
BACKWARD = [
    "agreement",
    "gradient dispatch",
    "router weights",
    "router gradients",
    "weight gradients",
    "gradient return",
    "experts backward",
]
ONCE = ["counts", "agreement", "stock", "experts backward"]
"""In a step; other phases come with every chunk."""

Call = tuple[str, int, str]
"""What is called, of which layer, and how."""


class Spec(NamedTuple):
    """A layer: `moves` says whether its steps move weights, or run the framework's own collectives."""

    world: str  # layer, transformers, model
    experts: int
    chunks: int  # 0: no budget
    moves: bool


class Fault(NamedTuple):
    """What a rank does when it comes to the nth collective of a phase, or call of the experts, after it is armed."""

    what: str
    rank: int
    phase: str
    nth: int = 0
    layer: int = 0
    after: float = 0.2  # seconds; what was begun before is sent by then
    error: type[BaseException] = ValueError

    @property
    def direction(self) -> str:
        return "backward" if self.phase in BACKWARD else "forward"


class Promise(NamedTuple):
    """What docs/errors.md promises of every rank that is left."""

    error: str = "CommError"  # "": all goes well
    peers: tuple[int, ...] = ()
    or_torchs: bool = False  # torch's own error is as good, where at least one rank names the fault or `peers` has -1
    says: str = ""
    place: bool = False  # the phase, layer and direction of the fault are named
    seconds: float = DEADLINE + MARGIN
    own: str = ""  # the error of the rank at fault, if it answers
    alike: bool = False  # all say the same


class Run(NamedTuple):
    seed: int
    kind: str
    ranks: int
    layers: list[Spec]
    scripts: list[list[Call]]
    promise: Promise
    faults: list[Fault] = []
    odd: tuple[int, ...] = ()
    ends: bool = False  # a rank ends as soon as it has its error, else when all have
    warm: bool = True
    store: str = "file"
    apart: bool = False  # experts are spread over half of the ranks, and the halves add their gradients

    def raising(self) -> set[int]:
        """The ranks that raise an error of their own."""
        return {fault.rank for fault in self.faults if fault.what == "raises"} or set(
            self.odd if self.promise.own else ()
        )

    def shown(self) -> str:
        short = self._replace(scripts=[])
        scripts = {rank: script[:20] for rank, script in enumerate(self.scripts) if rank in (*self.odd, 0, 1)}
        return f"{short}\n{scripts}"


def steps(numbers: list[int]) -> list[Call]:
    return [(which, number, "") for number in numbers for which in ("forward", "backward")]


def changed_script(script: list[Call], kind: str, layers: int, seeded: random.Random) -> list[Call]:
    """With a call less, a call more, or two in another order; each backward pass after its forward, the last call kept."""
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


MOVING = FORWARD + BACKWARD
PLACES = [(True, phase) for phase in MOVING] + [
    (False, phase) for phase in ("counts", "stock", "experts", "experts backward")
]
"""Whether the step moves weights, and where a rank fails in it."""

ALONE = ["counting", "planning", "arguments"]
"""Where a rank fails before anything of a step is sent, or before its rows are."""

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

UNLIKE = {
    "autocast": "autocast: is not the same on ranks",
    "hidden": "hidden: is not the same on ranks",
    "top_k": "top_k_weights: is not the same on ranks",
    "narrow": "top_k_index: is not the same on ranks",
    "ids": "top_k_index: [0-9]+ expert ids of rank",
    "weights": "weights: is not the same on ranks",
    "frozen": "weights.requires_grad: is not the same on ranks",
}
"""What one rank gives otherwise, and what all say."""


class Draft:
    """A run as it is drawn; `turn` counts the runs of its kind."""

    def __init__(self, seed: int) -> None:
        self.seed, self.kind, self.seeded = seed, CYCLE[seed % SAMPLE], random.Random(seed)
        self.turn = seed // SAMPLE * CYCLE.count(self.kind) + CYCLE[: seed % SAMPLE].count(self.kind)
        self.ranks = self.seeded.choice([2, 3, 4])
        self.step = 5 * self.turn + CYCLE.index(self.kind)  # through all places, whose number is prime
        self.odd = 0
        self.layers: list[Spec] = []
        self.arm: list[Call] = [("arm", 0, "")]

    @staticmethod
    def make(seed: int) -> Run:
        draft = Draft(seed)
        return KINDS[draft.kind](draft)

    def run(self, scripts: list[list[Call]], promise: Promise, *faults: Fault, **more: Any) -> Run:
        seeded = random.Random(self.seed)
        drawn = {"ends": seeded.random() < 0.3, "store": seeded.choice(["file", "file", "tcp"])}
        odd = tuple(sorted({fault.rank for fault in faults if fault.what not in INNOCENT})) or (self.odd,)
        named = Run(self.seed, self.kind, self.ranks, self.layers, scripts, promise, list(faults), odd)
        return named._replace(**drawn | more)

    def draw_layers(self, moves: bool, least: int = 1, most: int = 3, mixed: bool = False) -> None:
        """`mixed`: all but one layer may move weights or not."""
        seeded, count = self.seeded, self.seeded.randint(least, most)
        self.odd, self.target = seeded.randrange(self.ranks), seeded.randrange(count)
        for n in range(count):
            move = moves if n == self.target or not mixed else seeded.random() < 0.5
            world = seeded.choice(["layer", "transformers"])
            self.layers.append(Spec(world, seeded.choice([12, 24, 48]), seeded.choice([0, 0, 1, 2, 3]) * move, move))

    def round(self) -> list[Call]:
        """Each layer's forward and backward, one layer after the other or backward last."""
        numbers = list(range(len(self.layers)))
        if self.turn % 2:
            return steps(numbers)
        return [("forward", n, "") for n in numbers] + [("backward", n, "") for n in reversed(numbers)]

    def fault(self, what: str, phase: str, **given: Any) -> Fault:
        chunks = 1 if phase in ONCE else max(1, self.layers[self.target].chunks)
        after = 0.0 if self.seeded.random() < 0.2 else 0.2
        drawn = {"rank": self.odd, "nth": self.seeded.randrange(chunks), "layer": self.target, "after": after}
        return Fault(what, phase=phase, **drawn | given)

    def play(self, promise: Promise, *faults: Fault, **more: Any) -> Run:
        """All ranks play one script, in which the faults come."""
        script = self.round() * self.seeded.randrange(2) + self.arm + self.round() * 3
        return self.run([script] * self.ranks, promise, *faults, **more)


def gone(draft: Draft, what: str) -> Run:
    moves, phase = PLACES[draft.step % len(PLACES)]
    draft.draw_layers(moves, mixed=not phase.startswith("experts"))
    fault = draft.fault(what, phase)
    if (moves, phase) == (False, "experts backward"):
        return draft.play(Promise(peers=(-1, fault.rank), or_torchs=True), fault)
    if (what, moves, phase) == ("late", False, "experts"):  # of a step that all are in
        return draft.play(Promise(peers=(-1, fault.rank)), fault)
    says = "has not come to" if what == "late" else f"rank {fault.rank} does not answer"
    place = fault.after > 0 and not phase.startswith("experts")
    return draft.play(Promise(peers=(fault.rank,), says=says, place=place), fault)


def at_any_moment(draft: Draft) -> Run:
    """In training, or in steps without gradients, of which some are the framework's own."""
    trains = draft.seeded.random() < 0.5
    draft.draw_layers(True, mixed=not trains)
    fault = draft.fault(["killed", "stopped", "ends"][draft.turn % 3], "any moment", after=draft.seeded.uniform(0, 0.5))
    calls = draft.round() if trains else [("forward", n, "no_grad") for n in range(len(draft.layers))]
    promise = Promise(peers=(fault.rank,), says=f"rank {fault.rank} does not answer")
    return draft.run([draft.arm + calls * 1000] * draft.ranks, promise, fault)


def raises(draft: Draft) -> Run:
    """In the experts, or between collectives."""
    phase, error = MOVING[draft.step % len(MOVING)], draft.seeded.choice(ERRORS)
    draft.draw_layers(True, mixed=not phase.startswith("experts"))
    fault = draft.fault("raises", phase, error=error)
    says = rf"rank {fault.rank} failed \({error.__name__}: .*{OWN}"
    return draft.play(Promise(peers=(fault.rank,), says=says, seconds=DEADLINE / 2, own=error.__name__), fault)


def raises_alone(draft: Draft) -> Run:
    how = ALONE[draft.turn % len(ALONE)]
    draft.draw_layers(draft.seeded.random() < 0.5)
    own = "InvalidArgument" if how == "arguments" else "MemoryError"
    scripts = [draft.arm + draft.round() for _ in range(draft.ranks)]
    scripts[draft.odd] = [*draft.arm, ("forward", 0, how)]
    in_stock = how == "planning" and not draft.layers[0].moves  # where the others are by then
    seconds = DEADLINE + MARGIN if in_stock else DEADLINE / 2
    promise = Promise(peers=(draft.odd,), says=rf"rank {draft.odd} failed \({own}: ", seconds=seconds, own=own)
    return draft.run(scripts, promise, warm=draft.seeded.random() < 0.7)


def raises_in_stock(draft: Draft) -> Run:
    draft.draw_layers(False)
    error = draft.seeded.choice(ERRORS)
    fault = draft.fault("raises", "experts backward" if draft.turn % 4 == 3 else "experts", error=error)
    if fault.direction == "backward":
        return draft.play(Promise(peers=(-1, fault.rank), or_torchs=True, own=error.__name__), fault)
    says = rf"rank {fault.rank} failed \({error.__name__}: .*{OWN}"
    return draft.play(Promise(peers=(fault.rank,), says=says, own=error.__name__), fault)


def different_calls(draft: Draft, script: list[Call], changed: list[Call], says: str = "", named: bool = False) -> Run:
    """The odd rank is named where it differs from most, or by what says so."""
    scripts = [draft.arm + script for _ in range(draft.ranks)]
    scripts[draft.odd] = draft.arm + changed
    peers = (draft.odd,) if named or draft.ranks > 2 else (-1,)
    promise = Promise(peers=peers, says=says or "are at different calls", seconds=DEADLINE, alike=True)
    return draft.run(scripts, promise)


def other_calls(draft: Draft) -> Run:
    draft.draw_layers(True, least=2, most=4)
    numbers = draft.seeded.choices(range(len(draft.layers)), k=4)
    script = [*steps(numbers), ("forward", 0, "")]
    return different_calls(draft, script, changed_script(script, draft.kind, len(draft.layers), draft.seeded))


def backward_passes(draft: Draft) -> Run:
    """Swapped or skipped on one rank."""
    draft.draw_layers(True, least=2)
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
    if how == "detached":  # of arguments, which transformers' layers take from their module
        draft.layers = [spec._replace(world="layer") for spec in draft.layers]
    last = ("forward", draft.seeded.randrange(len(draft.layers)), "")
    says = f"backward, which rank {draft.odd} ran without gradients"
    return different_calls(draft, [*steps([n]), last], [("forward", n, how), last], says, named=True)


def without_gradients_in_stock(draft: Draft) -> Run:
    draft.draw_layers(False)
    scripts = []
    for rank in range(draft.ranks):
        how = draft.seeded.choice(["no_grad", "inference_mode"]) if rank == draft.odd else ""
        scripts.append([*draft.arm, ("forward", draft.target, how), *draft.round()])
    return draft.run(scripts, Promise(""))


def unlike(draft: Draft) -> Run:
    """The odd rank gives other arguments: all ranks say so, and go on."""
    how = "autocast" if draft.kind == "autocast" else list(UNLIKE)[1 + draft.turn % (len(UNLIKE) - 1)]
    draft.draw_layers(draft.seeded.random() < 0.7)
    if how in ("weights", "frozen"):
        draft.layers = [spec._replace(world="layer") for spec in draft.layers]
    scripts = []
    for rank in range(draft.ranks):
        scripts.append([*draft.arm, ("forward", draft.target, how if rank == draft.odd else ""), *draft.round()])
    return draft.run(scripts, Promise("InvalidArgument", says=UNLIKE[how], seconds=2 * DEADLINE, alike=True))


def while_innocent(draft: Draft) -> Run:
    """A rank dies while another is paused, or holds the interpreter; at once, or as the deadline passes."""
    draft.ranks = draft.seeded.choice([3, 4])
    draft.draw_layers(True)
    phase = MOVING[draft.step % len(MOVING)]
    victim = draft.fault(draft.seeded.choice(["killed", "stopped", "ends", "raises"]), phase, after=0.3)
    innocent = (victim.rank + draft.seeded.randrange(1, draft.ranks)) % draft.ranks
    after = draft.seeded.choice([0.05, DEADLINE - 0.5, DEADLINE]) if victim.what == "stopped" else 0.05
    other = victim._replace(what=draft.kind, rank=innocent, after=after)
    return draft.play(gone_or_failed(victim), victim, other)


def gone_or_failed(fault: Fault) -> Promise:
    own = "ValueError" if fault.what == "raises" else ""
    says = "failed" if own else "does not answer"
    return Promise(peers=(fault.rank,), says=f"rank {fault.rank} {says}", own=own)


def in_time(draft: Draft) -> Run:
    """A rank lets the others wait, for less than the deadline: all goes well."""
    draft.draw_layers(True)
    fault = draft.fault(["slow", "paused", "holds"][draft.turn % 3], MOVING[draft.step % len(MOVING)])
    return draft.play(Promise("", seconds=4 * DEADLINE), fault)


def several(draft: Draft) -> Run:
    draft.ranks = 4
    draft.draw_layers(True)
    phase = MOVING[draft.step % len(MOVING)]
    first = draft.fault(draft.seeded.choice(["killed", "stopped"]), phase, after=0.2)
    other = first._replace(rank=(first.rank + draft.seeded.randrange(1, 4)) % 4)
    if draft.turn % 3 == 2:  # of two faults either may be met first
        other = other._replace(what="raises")
        return draft.play(Promise(peers=(first.rank, other.rank), own="ValueError"), first, other)
    return draft.play(Promise(peers=(first.rank, other.rank), says="does not answer, nor does rank"), first, other)


def first_step(draft: Draft) -> Run:
    """Before the group's first collective has ended, no rank can be named; after it, any."""
    draft.draw_layers(True, most=1)
    what, phase = (
        draft.seeded.choice(["killed", "stopped"]),
        ["addresses", "meeting", "routes", "types"][draft.turn % 4],
    )
    fault = draft.fault(what, phase, nth=0, after=0.2)
    peer, says = fault.rank, "does not answer"
    if phase in ("addresses", "meeting"):
        peer, says = -1, "no rank (can be named|is known)"
    script = draft.arm + draft.round()
    return draft.run([script] * draft.ranks, Promise(peers=(peer,), says=says), fault, warm=False)


def halves(draft: Draft) -> Run:
    """Experts over pairs of ranks, whose gradients are added between the pairs by collectives that are not ours."""
    draft.ranks = 4
    draft.draw_layers(True, most=2)
    fault = draft.fault(draft.seeded.choice(["killed", "stopped", "raises"]), MOVING[draft.step % len(MOVING)])
    if draft.turn % 3 == 2:
        fault = Fault("killed", draft.odd, "any moment", after=draft.seeded.uniform(0, 0.5))
    script: list[Call] = []
    for call in draft.round():
        script += [call, ("add", call[1], "")] if call[0] == "backward" else [call]
    own = "ValueError" if fault.what == "raises" else ""
    says = rf"rank {fault.rank % 2}( \(global rank {fault.rank}\))? (failed|does not answer)"
    promise = Promise(peers=(fault.rank % 2,), or_torchs=True, says=says, own=own)
    more = (
        {"ends": True} if fault.phase == "any moment" else {}
    )  # else the other half waits for whom its own error stopped
    return draft.run([draft.arm + script * 1000] * 4, promise, fault, apart=True, **more)


def in_a_model(draft: Draft) -> Run:
    moves, phase = PLACES[draft.step % len(PLACES)]
    draft.ranks = draft.seeded.choice([2, 4])
    apart = draft.ranks == 4 and draft.seeded.random() < 0.5
    draft.layers = [Spec("model", 8, 0, moves)]
    draft.odd, draft.target = draft.seeded.randrange(draft.ranks), 0
    fault = draft.fault(draft.seeded.choice(["killed", "stopped", "raises"]), phase, after=0.2)
    if fault.what == "raises" and phase in ("stock", "counts"):
        fault = fault._replace(phase="experts")
    own = "ValueError" if fault.what == "raises" else ""
    named = fault.rank % (draft.ranks // (1 + apart))
    peers = (-1, named) if (moves, fault.phase) == (False, "experts backward") else (named,)
    says = rf"rank {named}( \(global rank {fault.rank}\))? (failed|does not answer)|no rank"
    return draft.play(Promise(peers=peers, or_torchs=True, says=says, own=own), fault, apart=apart)


KINDS: dict[str, Callable[[Draft], Run]] = {
    "killed": lambda draft: gone(draft, "killed"),
    "stopped": lambda draft: gone(draft, "stopped"),
    "late": lambda draft: gone(draft, "late"),
    "ends": lambda draft: gone(draft, "ends"),
    "orphaned": lambda draft: gone(draft, "orphaned"),
    "any moment": at_any_moment,
    "raises": raises,
    "raises alone": raises_alone,
    "raises in stock": raises_in_stock,
    "order": other_calls,
    "less": other_calls,
    "more": other_calls,
    "swapped": backward_passes,
    "skipped": backward_passes,
    "without gradients": without_gradients,
    "without gradients in stock": without_gradients_in_stock,
    "autocast": unlike,
    "types": unlike,
    "paused": while_innocent,
    "holds": while_innocent,
    "in time": in_time,
    "several": several,
    "first step": first_step,
    "halves": halves,
    "model": in_a_model,
}
CYCLE = [*KINDS, "killed", "stopped", "raises", "late", "model"]
assert len(CYCLE) == SAMPLE
