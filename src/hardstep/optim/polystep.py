"""PolyStep: trains any model or set of tensors from losses alone.

One step (paper, Algorithm 1): coordinates → particles → probes → losses → costs → plan → move.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep.errors import ConfigError, ObjectiveError
from hardstep.evaluation import (
    Candidates,
    Evaluator,
    Explanation,
    Incremental,
    LossFunction,
    ModelObjective,
    Objective,
    goal_of,
)
from hardstep.geometry import ParticleMap, num_particles
from hardstep.optim import state as states
from hardstep.optim.arguments import check_evaluator, check_loss_fn, check_some_loss
from hardstep.optim.coverage import Coverage, coverage
from hardstep.optim.report import StepReport, coast_report, finite_losses, solve_report
from hardstep.optim.rules import Context, Tensors
from hardstep.optim.settings import Settings, describe
from hardstep.optim.step import Proposal, Reach, advance, propose
from hardstep.schedules import length_at, temperature_at
from hardstep.subspaces import Layout, trainable


class PolyStep:
    """The optimizer.

    Args:
        model: A module, whose trainable parameters are searched, or named tensors.
        settings: A preset, or nothing for the defaults.
        evaluator: How losses of a model are computed.
        seed: Fixes every random draw.
        **changes: Fields of `Settings` that differ from `settings`.
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor],
        settings: Settings | None = None,
        *,
        evaluator: Evaluator | None = None,
        seed: int = 0,
        **changes: Any,
    ) -> None:
        if not isinstance(settings, Settings | None):
            raise ConfigError(f"settings must be Settings or a preset, got {settings!r}")
        self.settings = (settings or Settings()).changed(**changes)
        self.seed = seeds.check_seed(seed)
        self.evaluator: Evaluator = evaluator if evaluator is not None else Incremental()
        check_evaluator(self.evaluator)
        self.model = model if isinstance(model, nn.Module) else None
        self.tensors = trainable(model)
        layout = Layout(self.tensors)
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
        self._state = self._fresh_state()
        self.report: StepReport | None = None

    def _fresh_state(self) -> states.State:
        rows, dim = self._like.shape
        return states.fresh((rows, dim), self.settings.rules, self._like)

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
            The transport cost of the step, an average of the probes' losses that favours the
            better ones. It costs no extra evaluation.
        """
        started = time.perf_counter()
        before = self.evaluations
        check_loss_fn(loss_fn)
        goal = goal_of(self.model, self.evaluator, inputs, target, loss_fn, batched, objective)
        if not self._coast(goal):
            proposal = self.propose()
            losses = self._evaluate(proposal, goal)
            check_some_loss(losses, inputs)
            self.advance(proposal, losses)
        assert self.report is not None
        self.report = replace(
            self.report,
            evaluations=self.evaluations - before,
            seconds=time.perf_counter() - started,
        )
        return self.report.loss

    def propose(self) -> Proposal:
        """Where this step would look. Always a full solve; nothing changes yet."""
        at, state = self._state.step, self._state
        temperature, reach = self._reach(at)
        rotations = self.settings.rotation.draw(
            state.previous_move, seeds.generator(self.seed, "rotation", at)
        )
        directions = torch.einsum("pij,vj->pvi", rotations, self._vertices)
        jitter = self.settings.jitter
        probe_jitter, step_jitter = 0.0, torch.zeros(self.num_particles)
        if jitter.probe:
            probe_jitter = float(
                jitter.probe.draw(1, seeds.generator(self.seed, "probe jitter", at))
            )
        if jitter.step:
            step_jitter = jitter.step.draw(
                self.num_particles, seeds.generator(self.seed, "step jitter", at)
            )
        proposal = propose(at, directions, reach, temperature, probe_jitter, step_jitter)
        for rule, memory in zip(self.settings.rules, state.rules, strict=True):
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
        goal = goal_of(self.model, self.evaluator, inputs, target, loss_fn, batched, objective)
        return self._evaluate(proposal, goal)

    def explain(self, inputs: Any, target: Any, loss_fn: LossFunction) -> Explanation:
        """Print how a step on this batch is evaluated, and what it costs, per parameter.

        Nothing is changed. The table is also returned, as an object with `rows`.
        """
        goal = goal_of(self.model, self.evaluator, inputs, target, loss_fn, None, None)
        if not isinstance(goal, ModelObjective) or not hasattr(self.evaluator, "explain"):
            raise ConfigError(
                "explain needs a model, a batch and an evaluator with a method explain, got "
                f"{self.evaluator!r}"
            )
        with torch.no_grad():
            explanation = self.evaluator.explain(self.candidates(self.propose()), goal.problem)
        assert isinstance(explanation, Explanation)
        print(explanation)
        return explanation

    def coverage(self) -> Coverage:
        """Which hypotheses of the convergence theorem this run meets; print it."""
        return coverage(self.settings, self.subspace, self._state.statistics)

    def advance(self, proposal: Proposal, losses: Tensor) -> float:
        """Finish a step: solve, shape the move, change the tensors. Returns the loss."""
        expected = proposal.probes.shape[:3]
        if losses.shape != expected:
            raise ObjectiveError(
                f"losses must have shape {tuple(expected)} (particles, vertices, probes), "
                f"got {tuple(losses.shape)}"
            )
        if proposal.step != self._state.step:
            raise ConfigError(
                f"the proposal is for step {proposal.step}, the optimizer is at "
                f"{self._state.step}; call propose() anew"
            )
        self._find_tensors()
        known = losses.detach().double().cpu()
        finite, nonfinite = finite_losses(known, self.settings.nonfinite)
        move = advance(proposal, finite, self._solver, self._state.potentials)
        if nonfinite == known.numel():
            move = move._replace(transport_cost=math.nan)
        displacement, memories = move.displacement * self._real, []
        context = Context(proposal.step, move.transport_cost, self._weights)
        for rule, memory in zip(self.settings.rules, self._state.rules, strict=True):
            displacement, memory = rule.shape(displacement, memory, context)
            memories.append(rule.remember(proposal, known, memory))
        self._state = self._state._replace(
            rules=tuple(memories),
            potentials=move.plan.potentials,
            evaluations=self.evaluations + proposal.evaluations,
        )
        self._move(displacement)
        self.report = solve_report(proposal, move, displacement, nonfinite)
        self._state = self._state._replace(statistics=self._state.statistics.after(self.report))
        return move.transport_cost

    def parameters_at(
        self, proposal: Proposal, particle: int, vertex: int, probe: int
    ) -> dict[str, Tensor]:
        """All parameters of the model (or all tensors) at one probe."""
        row = torch.tensor([particle])
        offset = proposal.probes[particle, vertex, probe][None, None, None]
        searched = self._candidates_at(row, offset).parameters(0)
        if self.model is None:
            return searched
        plain = {name: p.detach() for name, p in self.model.named_parameters()}
        return plain | searched

    def candidates(self, proposal: Proposal) -> Candidates:
        """The parameter sets whose losses a proposal needs, in the order of its probes."""
        return self._candidates_at(proposal.rows, proposal.probes[proposal.rows])

    # -- parts of a step --------------------------------------------------------------------

    def _find_tensors(self) -> None:
        """Look the model's parameters up again: the user may have put others in their place."""
        if self.model is None:
            return
        self.tensors = trainable(self.model)
        now, known = Layout(self.tensors).specs, self.subspace.layout.specs
        if now != known:
            odd = min(n for n in now.keys() | known.keys() if now.get(n) != known.get(n))
            raise ConfigError(
                f"the model's trainable parameters changed since PolyStep was built: {odd!r} was "
                f"{known.get(odd)} and is {now.get(odd)}; build a new optimizer"
            )

    def _reach(self, step: int) -> tuple[float, Reach]:
        temperature = temperature_at(self.settings.temperature, step)
        step_radius = length_at("step_radius", self.settings.step_radius, step, temperature)
        probe_radius = length_at("probe_radius", self.settings.probe_radius, step, temperature)
        return temperature, Reach(step_radius, probe_radius, self.settings.num_probes)

    def _candidates_at(self, rows: Tensor, offsets: Tensor) -> Candidates:
        self._find_tensors()
        seed = seeds.derive(self.seed, "forward", self._state.step)
        return Candidates(self.tensors, self.subspace, self.particles, rows, offsets, seed)

    def _evaluate(self, proposal: Proposal, goal: Objective) -> Tensor:
        losses = proposal.remembered.clone()
        if len(proposal.rows):
            candidates = self.candidates(proposal)
            found = goal.losses(candidates)
            shape = tuple(found.shape) if isinstance(found, Tensor) else repr(found)[:80]
            if shape != (len(candidates),):
                raise ObjectiveError(f"objective must return {len(candidates)} losses, got {shape}")
            losses[proposal.rows] = found.double().cpu().reshape(-1, *losses.shape[1:])
        return losses

    def _coast(self, goal: Objective) -> bool:
        """Try to answer the step from a previous plan; false if a solve is needed."""
        for rule, memory in zip(self.settings.rules, self._state.rules, strict=True):
            if not rule.coasting(memory, self.steps):
                continue
            nowhere = torch.zeros_like(self._like[:1])[:, None, None]
            here = self._candidates_at(torch.zeros(1).long(), nowhere)
            loss = float(goal.losses(here))
            self._state = self._state._replace(evaluations=self.evaluations + 1)
            move = rule.coast(memory, self.steps, loss)
            if move is None:
                return False
            self.report = coast_report(self.steps, *self._reach(self.steps), loss, move)
            self._move(move)
            return True
        return False

    def _weights(self) -> Tensor:
        return self.particles.to_particles(self.subspace.project(self.tensors))

    def _move(self, displacement: Tensor) -> None:
        """Change the tensors and everything that follows them."""
        step = self._state.step
        flat = self.particles.to_coordinates(displacement)
        changes: Tensors = self.subspace.expand(flat)
        memories = []
        for rule, memory in zip(self.settings.rules, self._state.rules, strict=True):
            changes, memory = rule.shape_weights(changes, memory, self.tensors, step)
            memories.append(memory)
        with torch.no_grad():
            for name, change in changes.items():
                self.tensors[name].add_(change)
        self._state = self._state._replace(
            step=step + 1,
            coordinates=self._state.coordinates + displacement,
            previous_move=displacement,
            rules=tuple(memories),
        )
        redrawn = self.subspace.commit(step, flat)
        if any(rule.absorbs(step) for rule in self.settings.rules):
            self.forget()
        elif redrawn:
            self._state = states.forget(self._state, self.settings.rules, weights_too=False)

    def forget(self) -> None:
        """Drop what is remembered of past moves: velocities, averages, directions, potentials."""
        self._state = states.forget(self._state, self.settings.rules, weights_too=True)

    # -- saving -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit, next to the model's own weights."""
        saved = states.to_dict(self._state, describe(self.settings), self.seed)
        return saved | {"subspace": self.subspace.state_dict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a saved state; settings, seed and shapes must be the same."""
        state = states.from_dict(saved, describe(self.settings), self.seed, self._like)
        self.subspace.load_state_dict(saved["subspace"])
        self._state, self.report = state, None
