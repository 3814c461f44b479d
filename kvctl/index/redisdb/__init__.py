"""Prefix indexes of routers that live in Redis or Valkey."""

from kvctl.index.redisdb.connect import RedisUrl, parse_url
from kvctl.index.redisdb.kthena import KthenaIndex
from kvctl.index.redisdb.llmd import LlmdIndex

__all__ = ["KthenaIndex", "LlmdIndex", "RedisUrl", "parse_url"]
