"""The index of a live NVIDIA Dynamo standalone indexer."""

from kvctl.index.dynamo.index import DynamoIndex

__all__ = ["DynamoIndex"]
