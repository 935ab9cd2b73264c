import importlib.util
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from hardstep.theory import figures
from hardstep.theory.figures import BLUE, FIGURES
from hardstep.theory.report import COLUMNS
from hardstep.theory.spheres import best_axis_overlap

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "pages" / "theory.py"
TABULATED = {name: cache(f) for name, f in vars(figures).items() if name.startswith("tabulate_")}


@pytest.fixture(autouse=True)
def _computed_once(monkeypatch):
    for name, function in TABULATED.items():
        monkeypatch.setattr(figures, name, function)


def orders(found):
    return [curve.order for curve in found.values()]


class TestCurves:
    def test_gradient_and_curvature_blow_up_where_the_loss_jumps(self):
        gradients, curvatures = figures.tabulate_blow_up()
        assert gradients["step"].order == pytest.approx(-1, abs=1e-9)
        assert curvatures["step"].order == pytest.approx(-2, abs=1e-9)
        assert gradients["uneven step"].order == pytest.approx(-1, abs=0.05)
        assert curvatures["uneven step"].order == pytest.approx(-2, abs=0.05)

    def test_without_a_jump_both_are_one_order_lower(self):
        gradients, curvatures = figures.tabulate_blow_up()
        assert gradients["|x|, no jump"].order == pytest.approx(0, abs=1e-6)
        assert curvatures["|x|, no jump"].order == pytest.approx(-1, abs=1e-6)

    @pytest.mark.parametrize("dim", [2, 3, 4])
    def test_both_gradients_rise_by_the_jump_in_total(self, dim):
        for curve in figures.tabulate_gradients(dim).values():
            rise = (curve.y.sum() - curve.y[0] / 2) * curve.x[1]
            assert rise == pytest.approx(0.5, abs=1e-3)
            assert curve.y[-1] == 0

    def test_tail_gradient_is_larger_at_the_jump_and_smaller_far_from_it(self):
        found = figures.tabulate_gradients(3)
        tail, probe = found["tail kernel"], found["probe law"]
        assert tail.y[0] / probe.y[0] == pytest.approx(1.438, abs=1e-3)
        assert tail.y[50] < probe.y[50]

    def test_remainder_is_cubic_on_the_simplex_by_its_average_only(self):
        pointwise, averaged = figures.tabulate_remainders()
        assert orders(pointwise) == pytest.approx([3, 3, 0, 2, 2, 0], abs=0.05)
        assert orders(averaged) == pytest.approx([3, 3, 0, 3, 3, 0], abs=0.05)

    def test_descent_is_near_walls_in_proportion_to_the_tube_and_below_the_bound(self):
        found = figures.tabulate_occupancy()
        assert found["descent"].order == pytest.approx(1, abs=0.06)
        assert found["descent"].y == pytest.approx(found["descent"].x, rel=0.12)
        assert (found["descent"].y < found["bound"].y).all()
        assert found["swing"].y == pytest.approx(1 / 1.1, abs=2e-3)

    def test_conditioning_weakens_the_drift(self):
        for curve in figures.tabulate_drifts().values():
            assert curve.y[0] == pytest.approx(-best_axis_overlap(4), abs=0.003)
            assert (np.diff(curve.y) > 0).all()
            assert curve.y[-1] < -0.2

    def test_excursions_follow_their_laws(self):
        assert orders(figures.tabulate_excursions()) == pytest.approx([0.5, 0.0, -0.6], abs=0.03)

    def test_stationary_amplitude_is_that_of_the_closed_form(self):
        found = figures.tabulate_amplitudes()
        simulated, exact = found["simulated"], found["closed form"]
        assert simulated.y == pytest.approx(np.interp(simulated.x, exact.x, exact.y), rel=0.01)

    def test_violation_falls_with_the_penalty_and_ends_as_its_square(self):
        curve = figures.tabulate_violation()
        assert (np.diff(curve.y) < 0).all()
        assert curve.order == pytest.approx(-1.379, abs=0.01)
        assert curve.last_order == pytest.approx(-2, abs=0.02)

    def test_ghost_steps_grow_with_the_penalty_unless_all_rows_are_constant(self):
        *alive, frozen = figures.tabulate_ghost_steps().values()
        assert all((np.diff(curve.y) > 0).all() for curve in alive)
        assert [curve.y[-1] for curve in alive] == pytest.approx([0.735, 0.258, 0.208], abs=2e-3)
        assert np.abs(frozen.y).max() < 1e-14

    def test_uniform_rotations_average_a_ghost_step_out(self):
        found = figures.tabulate_ghost_means()
        assert found["uniform"].order == pytest.approx(-0.5, abs=0.05)
        assert found["biased"].y[-1] == pytest.approx(1 / 3, abs=0.01)

    def test_flat_pairs_follow_their_laws(self):
        found, laws = figures.tabulate_flat_pairs()
        for name, curve in found.items():
            law = np.interp(np.log(curve.x), np.log(laws[name].x), laws[name].y)
            assert curve.y == pytest.approx(law, abs=0.045)


class TestPictures:
    @pytest.mark.parametrize("name", FIGURES)
    def test_it_is_wide_enough_and_has_something_on_it(self, name, tmp_path):
        FIGURES[name].draw(tmp_path / "figure.png")
        pixels = image.imread(tmp_path / "figure.png")[:, :, :3]
        assert pixels.shape[1] == 1050
        assert 0.01 < (pixels.min(axis=2) < 0.9).mean() < 0.3
        blue = np.array([int(BLUE[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        assert (np.abs(pixels - blue).max(axis=2) < 0.01).sum() > 100

    def test_drawn_twice_it_is_the_same_file(self, tmp_path):
        for name in ("one.png", "two.png"):
            FIGURES["violation"].draw(tmp_path / name)
        assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def row(identifier, **changed):
    return {
        "id": identifier,
        "title": f"What {identifier} says about |x|",
        "theorem": "some",
        "kind": "X",
        "measured": {"p": 1.0, "q": 2.0, "r": 3.0, "s": 0.123456},
        "expected": {"p": 1.0, "s": 0.12},
        "tol": 0.01,
        "verdict": "pass",
        "control": {"wrong": {"p": 9.0}},
        "control_verdict": {"wrong": "fail"},
        "paper_value": {"s": 0.125},
        "paper_agrees": True,
        "seconds": 1.25,
        "note": "",
    } | changed


BROKEN = row("H7", verdict="fail", control_verdict={"wrong": "pass"}, paper_agrees=False)
RECORDED = {
    "checks": [row("A1", note="Beware."), row("A2", paper_value={}, paper_agrees=None), BROKEN],
    "hardstep": "0.1.0",
    "torch": "2.9",
    "python": "3.11",
    "machine": "a computer, 1 threads",
    "command": "python benchmarks/theory_page.py",
    "date": "2025-01-02T03:04:05+00:00",
}


class TestPage:
    @pytest.fixture
    def script(self, tmp_path, monkeypatch):
        spec = importlib.util.spec_from_file_location("theory_page", SCRIPT)
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        monkeypatch.setattr(script, "PAGE", tmp_path / "theory.md")
        monkeypatch.setattr(script, "RECORD", tmp_path / "theory.json")
        monkeypatch.setattr(script.sys, "argv", ["theory_page.py", "--report"])
        script.PAGE.write_text(f"# Theory\n\n{script.BEGIN}\nold\n{script.END}\n\nThe end.\n")
        script.RECORD.write_text(json.dumps(RECORDED))
        return script

    @pytest.fixture
    def rows(self, script):
        script.main()
        lines = [line for line in script.PAGE.read_text().splitlines() if line.startswith("| ")]
        tables = [line.replace(r"\|", "").strip("| ").split(" | ") for line in lines]
        return {cells[0]: dict(zip(COLUMNS, cells, strict=True)) for cells in tables}

    def test_every_check_is_between_the_markers_and_the_rest_is_left_alone(self, script):
        script.main()
        before, rest = script.PAGE.read_text().split(script.BEGIN)
        written, after = rest.split(script.END)
        assert before == "# Theory\n\n"
        assert after == "\n\nThe end.\n"
        assert "old" not in written
        assert all(f"\n| {identifier} | " in written for identifier in ("A1", "A2", "H7"))
        assert "- **A1**: Beware." in written
        assert "2025-01-02; hardstep 0.1.0, PyTorch 2.9, Python 3.11; a computer" in written

    def test_writing_it_again_changes_nothing(self, script):
        script.main()
        once = script.PAGE.read_text()
        script.main()
        assert script.PAGE.read_text() == once

    def test_a_cell_has_three_numbers_those_the_paper_prints_among_them(self, rows):
        assert rows["A1"]["measured"] == "p: 1<br>q: 2<br>s: 0.1235<br>and 1 more"
        assert rows["A1"]["expected"] == "p: 1<br>s: 0.12"
        assert rows["A1"]["paper"] == "s: 0.125<br>agrees"
        assert rows["A2"]["paper"] == "–"

    def test_what_is_not_sound_stands_out(self, rows, script):
        found = rows["H7"]
        assert (found["verdict"], found["control"]) == ("**fail**", "**passes**")
        assert found["paper"].endswith("**differs**")
        assert script.main() == 1

    def test_summary_counts_checks_controls_and_printed_figures(self, script):
        assert (
            "2 of 3 checks pass, 2 of 3 controls fail as they must, 2 checks are sound; "
            "1 of 2 agree with the paper's printed figures; 4 CPU-seconds"
        ) in script.text(RECORDED)

    def test_figures_are_with_their_groups_and_all_have_captions(self, script):
        groups = script.text(RECORDED).split("\n### ")
        assert "theory/blow-up.png" in groups[1]
        assert "theory/ghost.png" in groups[2]
        assert "theory/kernels.png" not in script.text(RECORDED)
        assert script.CAPTIONS.keys() == FIGURES.keys()
