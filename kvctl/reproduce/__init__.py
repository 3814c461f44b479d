"""The #2287 experiment: a wiped cache, a router that does not know, and what each fix is worth."""
