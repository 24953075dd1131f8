"""Measure turns with recall and memory commits beside the same turns without a memory."""
