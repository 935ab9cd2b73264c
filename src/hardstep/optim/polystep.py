"""PolyStep: trains any model or set of tensors from losses alone.

One step (paper, Algorithm 1): coordinates → particles → probes → losses → costs → plan → move.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Never

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep._checks import check_method, show
from hardstep.errors import ConfigError
from hardstep.evaluation import (
    Candidates,
    Evaluator,
    Explanation,
    Incremental,
    LossFunction,
    ModelObjective,
    Objective,
    make_objective,
    own_evaluator,
)
from hardstep.evaluation.sandbox import claim
from hardstep.geometry import Jitter, ParticleMap, Polytope, Rotation, num_particles
from hardstep.optim import state as states
from hardstep.optim.coverage import Coverage, measure_coverage
from hardstep.optim.draws import Draws
from hardstep.optim.report import StepReport, check_batch, finite_losses
from hardstep.optim.rules import Context, Reuse, Rule, RuleState, Tensors
from hardstep.optim.selection import Only, Searched
from hardstep.optim.settings import NonFinite, Settings, describe
from hardstep.optim.step import Proposal, advance, draw_jitter, evaluate, propose
from hardstep.optim.watch import Watch
from hardstep.schedules import Radius, Schedule
from hardstep.solvers import Solver
from hardstep.subspaces import Layout, Subspace


class PolyStep:
    """The optimizer.

    Args:
        model: A module, whose trainable parameters are searched, or named tensors.
        settings: A preset, or nothing for the defaults.
        only: Which tensors are searched: a name, a pattern such as `"router.*"`, a tensor, or a
            list of these; the rest is yours to train. Everything if left out.
        evaluator: How losses of a model are computed; the one it brings along, or `Incremental()`,
            if left out.
        clock: The step that schedules are at when so many have been taken, for runs whose length
            is not a number of steps; that number itself if left out.
        seed: Fixes every random draw.

    The other arguments are fields of `Settings`, explained there; those that are given replace
    the ones of `settings`.
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor],
        settings: Settings | None = None,
        *,
        subspace: Subspace | None = None,
        polytope: Polytope | None = None,
        rotation: Rotation | None = None,
        solver: Solver | None = None,
        temperature: Schedule | None = None,
        step_radius: Radius | None = None,
        probe_radius: Radius | None = None,
        num_probes: int | None = None,
        jitter: Jitter | None = None,
        rules: Sequence[Rule] | None = None,
        nonfinite: NonFinite | None = None,
        only: Only | None = None,
        evaluator: Evaluator | None = None,
        clock: Callable[[int], int] | None = None,
        seed: int = 0,
        **unknown: Never,
    ) -> None:
        if not isinstance(settings, Settings | None):
            raise ConfigError(f"settings must be Settings or a preset, got {show(settings)}")
        self.settings = (settings or Settings()).changed(
            subspace=subspace, polytope=polytope, rotation=rotation, solver=solver,
            temperature=temperature, step_radius=step_radius, probe_radius=probe_radius,
            num_probes=num_probes, jitter=jitter, rules=rules, nonfinite=nonfinite, **unknown,
        )  # fmt: skip
        self.seed = seeds.check_seed(seed)
        usual = own_evaluator(model) or Incremental()
        self.evaluator: Evaluator = usual if evaluator is None else evaluator
        check_method("evaluator", self.evaluator, "losses", "Incremental()")
        self._clock = clock or int
        self._searched = Searched(model, only)
        self.report: StepReport | None = None
        self._watch = Watch(sum(rule.patience for rule in self.settings.rules))
        self._bind(self._searched.layout)

    def _bind(self, layout: Layout) -> None:
        """Fit the settings to the tensors."""
        dim = self.settings.polytope.dim
        self.subspace = self.settings.subspace.bind(layout, dim, self.seed)
        self.particles = ParticleMap(self.subspace.group_sizes, dim)
        self._like = torch.empty(
            self.particles.num_particles, dim, dtype=layout.dtype, device=layout.device
        )
        self._vertices = self.settings.polytope.vertices().to(self._like)
        self._real = self.particles.real.to(layout.device)
        self._solver = self.settings.solver.bind(
            [sum(num_particles(s, dim) for s in b.group_sizes) for b in self.subspace.blocks]
        )
        self._draws = Draws(self.settings.rotation, self.seed)
        self._state = states.start(self.settings.rules, self._like)
        self._moved: Tensor | None = None  # by the last step, if nothing else changed the tensors

    @property
    def model(self) -> nn.Module | None:
        """The model, unless named tensors were given."""
        return self._searched.model

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors that are searched, by name."""
        return self._searched.tensors

    @property
    def num_particles(self) -> int:
        """The number of particles, P."""
        return self.particles.num_particles

    @property
    def evaluations_per_step(self) -> int:
        """P·V·K, what a step with a solve costs."""
        return self.num_particles * len(self._vertices) * self.settings.num_probes

    @property
    def steps(self) -> int:
        """Steps taken."""
        return self._state.step

    @property
    def evaluations(self) -> int:
        """Losses computed so far."""
        return self._state.evaluations

    @property
    def coordinates(self) -> Tensor:
        """The coordinates z since the start or the last absorb, (n,)."""
        return self.particles.to_coordinates(self._state.coordinates)

    # -- one step ---------------------------------------------------------------------------

    def step(
        self,
        inputs: Any = None,
        target: Any = None,
        loss_fn: LossFunction | None = None,
        *,
        batched: Callable[[dict[str, Tensor]], Any] | None = None,
        objective: Objective | None = None,
    ) -> float:
        """Take one step and return its loss; `report` has the details.

        Give exactly one of: a batch, its target and a loss function; a closure that takes
        nothing and returns a number; `batched`, a function of stacked tensors
        {name: (N, *shape)} returning (N,); an `objective`.

        Returns:
            The transport cost of the step, an average of the probes' losses that favors the
            better ones. It costs no extra evaluation.
        """
        started, before = time.perf_counter(), self.evaluations
        asked = self._objective(inputs, target, loss_fn, batched, objective)
        with claim(self.model):
            if not self._answer(asked):
                self._announce(asked)
                proposal = self.propose()
                self._offer_work()
                losses = evaluate(proposal, self.candidates, asked)
                check_batch(losses, inputs)
                self.advance(proposal, losses)
        assert self.report is not None
        self.report = replace(
            self.report,
            evaluations=self.evaluations - before,
            seconds=time.perf_counter() - started,
        )
        self._watch.note(self.report, asked)
        return self.report.loss

    def propose(self) -> Proposal:
        """Where this step would look. Always a full solve; nothing changes yet."""
        at, state = self._state.step, self._state
        temperature, reach = self.settings.reach_at(self._clock(at))
        for rule, memory in self._rules():
            reach = rule.extend(reach, memory)
        rotations = self._draws.draw(at, state.previous_move)
        directions = torch.einsum("pij,vj->pvi", rotations, self._vertices)
        jitter = draw_jitter(self.settings.jitter, self.num_particles, self.seed, at)
        proposal = propose(at, directions, reach, temperature, *jitter)
        for rule, memory in self._rules():
            if isinstance(rule, Reuse):
                proposal = rule.recall(proposal, memory)
        return proposal

    def evaluate(
        self,
        proposal: Proposal,
        inputs: Any = None,
        target: Any = None,
        loss_fn: LossFunction | None = None,
        *,
        batched: Callable[[dict[str, Tensor]], Any] | None = None,
        objective: Objective | None = None,
    ) -> Tensor:
        """The losses of a proposal's probes, (P, V, K); arguments as for `step`."""
        objective = self._objective(inputs, target, loss_fn, batched, objective)
        return evaluate(proposal, self.candidates, objective)

    def explain(self, inputs: Any, target: Any, loss_fn: LossFunction) -> Explanation:
        """How a step on this batch is evaluated, and what it costs, per parameter; print it.

        Nothing is changed. The table has a line per parameter, in `parameters`.
        """
        objective = self._objective(inputs, target, loss_fn, None, None)
        explain = getattr(self.evaluator, "explain", None)
        if not isinstance(objective, ModelObjective) or explain is None:
            raise ConfigError(
                "explain needs a model, a batch and an evaluator with a method explain, got "
                f"{self.evaluator!r}"
            )
        with torch.no_grad():
            return explain(self.candidates(self.propose()), objective.problem)  # type: ignore[no-any-return]

    def coverage(self) -> Coverage:
        """Which hypotheses of the convergence theorem this run meets; print it."""
        return measure_coverage(self.settings, self.subspace, self._state.statistics)

    def advance(self, proposal: Proposal, losses: Tensor) -> float:
        """Finish a step: solve, shape the move, change the tensors. Returns the loss."""
        proposal.check(losses, self.steps)
        self._searched.refresh()
        known = losses.detach().double().cpu()
        finite, nonfinite = finite_losses(known, self.settings.nonfinite)
        move = advance(proposal, finite, self._solver, self._state.potentials)
        if nonfinite == known.numel():
            move = move._replace(transport_cost=math.nan)
        displacement, memories = move.displacement * self._real, []
        dead = float((move.costs.amax(dim=1) == move.costs.amin(dim=1)).double().mean())
        context = Context(self._clock(self.steps), move.transport_cost, dead, self._weights)
        for rule, memory in self._rules():
            displacement, memory = rule.shape(displacement, memory, context)
            if isinstance(rule, Reuse):
                memory = rule.remember(proposal, known, memory)
            memories.append(memory)
        self._state = self._state._replace(
            rules=tuple(memories),
            potentials=move.plan.potentials,
            evaluations=self.evaluations + proposal.evaluations,
        )
        self._move(displacement)
        self.report = StepReport.of_solve(proposal, move, displacement, nonfinite)
        self._state = self._state._replace(statistics=self._state.statistics.after(self.report))
        return move.transport_cost

    def candidates(self, proposal: Proposal) -> Candidates:
        """The parameter sets whose losses a proposal needs, in the order of its probes."""
        return self._candidates_at(proposal.rows, proposal.probes[proposal.rows])

    # -- parts of a step --------------------------------------------------------------------

    def _objective(self, *given: Any) -> Objective:
        return make_objective(self.model, self.evaluator, *given)

    def _rules(self) -> Iterator[tuple[Rule, RuleState]]:
        """Every rule with what it remembers."""
        return zip(self.settings.rules, self._state.rules, strict=True)

    def _candidates_at(self, rows: Tensor, offsets: Tensor) -> Candidates:
        self._searched.refresh()
        seed = seeds.derive(self.seed, "forward", self._state.step)
        return Candidates(
            self.tensors, self.subspace, self.particles, rows, offsets, seed, self._moved
        )

    def _loss_here(self, objective: Objective) -> float:
        """The loss at the parameters themselves."""
        nowhere = torch.zeros_like(self._like[:1])[:, None, None]
        loss = float(objective.losses(self._candidates_at(torch.zeros(1).long(), nowhere)))
        self._state = self._state._replace(evaluations=self.evaluations + 1)
        return loss

    def _answer(self, objective: Objective) -> bool:
        """Let a rule answer the step; false if none does, and a solve is needed."""
        for rule, memory in self._rules():
            if not isinstance(rule, Reuse):
                continue
            found = rule.answer(memory, self.steps, partial(self._loss_here, objective))
            if found is not None:
                reach = self.settings.reach_at(self._clock(self.steps))
                self.report = StepReport.of_answer(self.steps, *reach, found.loss, found.move)
                self._move(found.move)
                return True
        return False

    def _announce(self, objective: Objective) -> None:
        """Let workers prepare for a step while its probes are drawn."""
        announce = getattr(objective, "announce", None)
        if announce is not None:
            announce(self._candidates_at(torch.empty(0, dtype=torch.long), self._like[:0]))

    def _offer_work(self) -> None:
        """Let workers be waited for with something to do: the next step's rotations."""
        offer = getattr(self.evaluator, "while_waiting", None)
        if offer is not None and self._draws.may_be_early:
            offer(partial(self._draws.draw_ahead, self.steps + 1, self._like))

    def _tell_move(self, flat: Tensor) -> None:
        """Let workers move at the same time, unless a rule makes another change of the move."""
        tell, rules = getattr(self.evaluator, "tell_move", None), self.settings.rules
        if tell is not None and all(type(one).shape_weights is Rule.shape_weights for one in rules):
            tell(flat, self.steps)

    def _weights(self) -> Tensor:
        return self.particles.to_particles(self.subspace.project(self.tensors))

    def _move(self, displacement: Tensor) -> None:
        """Change the tensors and everything that follows them."""
        step, at = self._state.step, self._clock(self.steps)
        flat = self.particles.to_coordinates(displacement)
        self._tell_move(flat)
        plain: Tensors = self.subspace.expand(flat)
        changes, memories = plain, []
        for rule, memory in self._rules():
            changes, memory = rule.shape_weights(changes, memory, self.tensors, at)
            memories.append(memory)
        with torch.no_grad():
            for name, change in changes.items():
                self.tensors[name].add_(change)
        self._moved = flat if changes is plain else None
        self._state = self._state._replace(
            step=step + 1,
            coordinates=self._state.coordinates + displacement,
            previous_move=displacement,
            rules=tuple(memories),
        )
        redrawn = self.subspace.commit(step, flat)
        if any(rule.is_restart(step) for rule in self.settings.rules):
            self.forget()
        elif redrawn:
            self._state = states.forget(self._state, self.settings.rules, weights_too=False)

    def forget(self) -> None:
        """Drop what is remembered of past moves: velocities, averages, directions, potentials."""
        self._state = states.forget(self._state, self.settings.rules, weights_too=True)

    # -- saving -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume bit for bit, next to the model's own weights."""
        saved = states.to_dict(self._state, describe(self.settings), self.seed)
        return saved | {"subspace": self.subspace.state_dict()} | self._searched.state_dict()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume from a saved state; settings, seed and shapes must be the same."""
        self._searched.check_state(saved)
        rules, text = self.settings.rules, describe(self.settings)
        state = states.from_dict(saved, text, self.seed, rules, self._like)
        states.load_subspace(self.subspace, saved["subspace"])
        self._state, self.report = state, None
