import json

from tests.cli.program import hardstep


def test_diagnose_prints_the_share_of_mirrored_pairs_on_demand(tmp_path):
    (tmp_path / "own.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "from hardstep.data import from_tensors\n"
        "from hardstep.nn import QuantizedLinear\n"
        "from hardstep.tasks import Task\n"
        "x = torch.linspace(-1, 1, 200).reshape(50, 4)\n"
        "task = Task('own', 'own', data=lambda s: from_tensors(x, torch.arange(50) % 2, s),\n"
        "            model=lambda: QuantizedLinear(4, 2), steps=2, batch_size=16)\n"
    )
    done = hardstep("diagnose", "own.py:task", "--pairs", cwd=tmp_path)
    assert done.returncode == 0
    line = done.stdout.splitlines()[-1]
    assert line.startswith("mirrored probes of all weights with the same loss: ")
    assert line.endswith("at 0.02")
    found = json.loads(
        hardstep("diagnose", "own.py:task", "--pairs", "--json", cwd=tmp_path).stdout
    )
    shares = [pair["flat"] for pair in found["mirrored_pairs"]]
    assert shares[0] > 0.9 > 0.1 > shares[2]
