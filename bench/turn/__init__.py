"""Measure a turn end to end, under load, beside a bare pass-through and a durable prototype."""
