"""Fixtures and settings that every test shares."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["dynamos", "valkeys"]

# Two shared cores: an example may take long without anything being wrong.
settings.register_profile(
    "kvctl", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.load_profile("kvctl")
