"""The groups that options and commands stand in, by the names that every help gives them."""

from __future__ import annotations

PODS = "Pods"
KUBERNETES = "Kubernetes"
EVENTS = "Events"
ENTRIES = "Entries"
TIME = "Time"
INDEX = "Index"
PROMPT = "Prompt"
ROUTER = "Router"
ENGINE = "Engine"
OUTPUT = "Output"
SAFETY = "Safety"
EVERYWHERE = "Everywhere"
"""Options that every command takes."""
