"""Who would get a prompt: models of how routers choose among the pods that match."""

from kvctl.router.longest import Choice, choose_longest

__all__ = ["Choice", "choose_longest"]
