"""Stage 1: disentangled causal mechanisms, pairs of networks that carry images between the domains (Section 3.1)."""
