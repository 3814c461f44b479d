"""kvctl: see, prove and repair prefix-cache routing of LLM serving fleets."""

__version__ = "0.1.0"
