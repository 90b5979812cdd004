"""Figures of runs. Every function returns a matplotlib `Figure` of its own; none touches pyplot's global state."""
