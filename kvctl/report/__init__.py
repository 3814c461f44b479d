"""What a capture shows of an incident: counts over time, findings in words, a page to keep.

Times are the engines' clocks, seconds since the epoch, where nothing else is said.
"""
