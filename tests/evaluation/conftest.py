"""What tests of the evaluator share."""

import pytest

from hardstep.evaluation import gathered_tier


@pytest.fixture
def always_gather(monkeypatch):
    """Gather examples of networks, too, that are so small that whole forward passes take less."""
    monkeypatch.setattr(gathered_tier, "check_worth", lambda *given: None)
